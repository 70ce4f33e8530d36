"""bare.py ROOT KEPT WRITABLE SERVER... and CLIENT...: starts a server, and a client with its port, where there is next to nothing:
the root is read-only, without /proc, /sys and /dev/shm. To be run in a mount namespace of its own; ROOT is an empty directory,
KEPT one whose files are there, of which WRITABLE can be written to. Exits with status 77 where that cannot be made."""
import ctypes
import os
import subprocess
import sys

RDONLY, REMOUNT, BIND, REC, PRIVATE = 1, 32, 4096, 16384, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags):
    if libc.mount(source.encode(), target.encode(), kind, flags, None) != 0:
        print(f"mount {target}:", os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(77)


def bind(path, read_only=True):
    os.makedirs(root + path, exist_ok=True)
    mount(path, root + path, None, BIND)
    if read_only:
        mount("none", root + path, None, BIND | REMOUNT | RDONLY)


root, kept, writable = sys.argv[1:4]
words = sys.argv[4:]
mount("none", "/", None, REC | PRIVATE)
mount("bare", root, b"tmpfs", 0)
for path in ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64"):
    if os.path.islink(path):
        os.symlink(os.readlink(path), root + path)
    elif os.path.isdir(path):
        bind(path)
bind(kept)
bind(writable, read_only=False)
os.mkdir(root + "/dev")
open(root + "/dev/null", "w").close()
mount("/dev/null", root + "/dev/null", None, BIND)
mount("none", root, None, REMOUNT | RDONLY)
os.chroot(root)
os.chdir("/")
for gone in ("/proc", "/dev/shm", "/sys"):
    assert not os.path.exists(gone), gone
try:
    open("/file", "w")
    sys.exit("the root can be written to")
except OSError as e:
    print("root:", e.strerror)

split = words.index("and")
server = subprocess.Popen(words[:split], stdout=subprocess.PIPE, text=True)
try:
    port = server.stdout.readline().split()[1]
    sys.exit(subprocess.run(words[split + 1 :] + [port]).returncode)
finally:
    server.terminate()
    server.wait()
