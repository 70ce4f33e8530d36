"""hands.py PORT HOW USER BECOME: a process with a connection to an echo server executes BECOME (become.c), which becomes USER and executes this once more,
without the library. HOW: "plain", by its path; "searched", in PATH, where another one of its name stands behind it; "opened", by a descriptor; "script", as the interpreter of a script;
"narrow", by a process that has more addresses already than it may have; "secure": this program itself, by a process whose effective user is not its real one; "clock", by a process that is
in another time namespace from then on; "mapless", where the library's file may not be executed: its loader finds it and cannot load it. Says what the last one has: the answers to what was said
before and after, deeds, descriptors of what the family says of its sockets, and how many of them can be opened."""
import ctypes
import fcntl
import os
import resource
import shutil
import socket
import subprocess
import sys

UNDER_WAY = b"under way" * 1000
C = ctypes.CDLL(None, use_errno=True)


def talk(s, what):
    s.sendall(what)
    assert s.recv(100) == what


def image(number):
    """The last program."""
    s = socket.socket(fileno=number)
    heard = b""
    while len(heard) < len(UNDER_WAY):
        heard += s.recv(len(UNDER_WAY) - len(heard))
    assert heard == UNDER_WAY
    for _ in range(40):
        talk(s, b"image")
    regions, opened = 0, 0
    for n in os.listdir("/proc/self/fd"):
        path = "/proc/self/fd/" + n
        try:
            if "bypath-view" not in os.readlink(path):
                continue
        except FileNotFoundError:
            continue
        regions += 1
        # A descriptor itself opens something, or its file does by its name.
        try:
            if fcntl.fcntl(int(n), fcntl.F_GETFL) & os.O_PATH:
                os.close(os.open(path, os.O_RDONLY))
            opened += 1
        except PermissionError:
            pass
    with open("/proc/self/maps") as maps:
        print("libraries", sum("libbypath" in line for line in maps))
    print("answers", 1)
    print("deeds", sum(name == "BYPATH_DEED" for name in os.environ))
    print("regions", regions)
    print("opened", opened, flush=True)


def folder(name, program):
    """A folder of the scene with a program of that name."""
    os.mkdir(name)
    shutil.copy(program, name + "/hands-program")
    return os.path.abspath(name)


def main():
    if sys.argv[1] == "image":
        return image(int(sys.argv[2]))
    port, how, user, become = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    s = socket.create_connection(("127.0.0.1", port))
    for _ in range(40):
        talk(s, b"ping")
    with open("/proc/self/maps") as maps:
        assert "bypath-arena" in maps.read(), "nothing is shared"
    s.set_inheritable(True)
    s.sendall(UNDER_WAY)
    last = [sys.executable, __file__, "image", str(s.fileno())]
    words = ["become", user, "-"] + last
    if how == "plain":
        os.execv(become, words)
    elif how == "searched":
        os.environ["PATH"] = folder("first", become) + ":" + folder("second", "/usr/bin/env")
        os.execvp("hands-program", words)
    elif how == "opened":
        os.execve(os.open(become, os.O_RDONLY), words, os.environ)
    elif how == "script":
        with open("script", "w") as script:
            script.write(f"#!{become} {user}\n")
        os.chmod("script", 0o755)
        os.execv("./script", ["./script"] + last)
    elif how == "narrow":
        with open("/proc/self/status") as status:
            size = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize:"))
        resource.setrlimit(resource.RLIMIT_AS, (size // 4 * 3, resource.RLIM_INFINITY))
        os.execv(become, words)
    elif how == "clock":
        # CLONE_NEWTIME: its children are in it at once, itself at its next exec.
        assert C.unshare(0x80) == 0, os.strerror(ctypes.get_errno())
        with open("/proc/self/timens_offsets", "w") as offsets:
            offsets.write("boottime 1000 0")
        os.execv(become, words)
    elif how == "mapless":
        # CLONE_NEWNS.
        assert C.unshare(0x20000) == 0, os.strerror(ctypes.get_errno())
        with open("/proc/self/maps") as maps:
            library = next(line.split()[-1] for line in maps if "libbypath" in line)
        for options in ["--make-rprivate /", f"--bind {library} {library}", f"-o remount,bind,noexec {library}"]:
            subprocess.run(["mount", *options.split()], check=True)
        os.execv(become, words)
    elif how == "secure":
        os.setresuid(int(user), 0, 0)
        os.execv(sys.executable, last)


main()
