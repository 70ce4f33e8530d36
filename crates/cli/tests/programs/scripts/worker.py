"""worker.py PORT MODE USER: a process with connections to an echo server forks a worker, and connects once more. MODE: the worker
"drops" them and becomes USER, or does so where it may have no more data ("limited"), or fewer addresses than it has ("narrow"), behind a filter of system calls ("sealed"),
or as a child of clone3 ("cloned"), or in what pthread_atfork registers ("atfork"), "holds" one and becomes USER, "stays" what it is, also of a fork() that was looked up in the C library by a "handle", or where the process has forked before and "gains" the right to become another user only then, "executes" a program as USER, which has one; or the process puts octets "aside" before and after the fork. Says what the worker, or
that program, has then."""
import ctypes
import fcntl
import mmap
import os
import re
import resource
import signal
import socket
import struct
import sys
import termios
import time

CLONE3 = 435
PR_SET_SECCOMP, FILTER = 22, 2
LIBC = ctypes.CDLL(None, use_errno=True)
SECRET = b"for the other end alone"


def mapped(name):
    """Of what is mapped under this name: addresses, and the number of the memory."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) +/memfd:bypath-" + name, line)
            if m:
                found.append((int(m[1], 16), int(m[2], 16), m[3]))
    return found


def octets(maps):
    return sum(to - at for at, to, _ in maps)


class Program(ctypes.Structure):
    """struct sock_fprog."""
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def seal():
    """A filter that allows everything: BPF_RET, SECCOMP_RET_ALLOW."""
    code = struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
    program = Program(1, code)
    assert LIBC.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())


def clone3():
    """As fork."""
    arguments = struct.pack("=11Q", 0, 0, 0, 0, signal.SIGCHLD, *[0] * 6)
    child = LIBC.syscall(CLONE3, arguments, len(arguments))
    assert child >= 0, os.strerror(ctypes.get_errno())
    return child


def fork_by_handle():
    """No function of the preloaded library is called."""
    child = ctypes.PyDLL("libc.so.6").fork()
    assert child >= 0
    return child


def gain():
    """Forks without the right to become another user, and has that then: in a user namespace of its own."""
    version = struct.pack("=Ii", 0x20080522, 0)
    # CAP_SETUID.
    rights = ~(1 << 7) & 0xFFFFFFFF
    sets = ctypes.create_string_buffer(24)
    assert LIBC.capget(version, sets) == 0, os.strerror(ctypes.get_errno())
    words = struct.unpack("=6I", sets.raw)
    fewer = struct.pack("=6I", words[0] & rights, words[1] & rights, words[2] & rights, *words[3:])
    assert LIBC.capset(version, fewer) == 0, os.strerror(ctypes.get_errno())
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    # CLONE_NEWUSER.
    assert LIBC.unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())
    with open("/proc/self/uid_map", "w") as users:
        users.write("0 0 1")


def line(port):
    s = socket.create_connection(("127.0.0.1", port))
    for _ in range(40):
        talk(s, b"ping")
    return s


def talk(s, what):
    s.sendall(what)
    assert s.recv(100) == what


def work(lines, mode, user, before, ready, go):
    if mode != "atfork":
        for s in lines[mode in ("holds", "executes"):]:
            s.close()
    if mode == "limited":
        with open("/proc/self/status") as status:
            data = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))
        resource.setrlimit(resource.RLIMIT_DATA, (data + (1 << 20),) * 2)
    if mode == "sealed":
        seal()
    if mode == "narrow":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
    if mode not in ("stays", "gains", "handle", "atfork"):
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if mode == "narrow":
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    if mode in ("holds", "atfork"):
        for _ in range(40):
            talk(lines[0], b"worker")
    if mode == "executes":
        os.dup2(lines[0].fileno(), 0)
        os.set_inheritable(0, True)
        shared = ",".join(number for _, _, number in mapped("view"))
        os.execv(sys.executable, [sys.executable, __file__, "image", shared, str(ready)])
    left = mapped("arena")
    held = sum("bypath-arena" in os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if
               os.path.lexists("/proc/self/fd/" + n))
    os.write(ready, b"x")
    os.read(go, 1)
    for at, to, _ in left:
        # What nobody may touch there it can open.
        assert LIBC.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(to - at), mmap.PROT_READ) == 0
    seen = sum(ctypes.string_at(at, to - at).count(SECRET) for at, to, _ in left)
    print("before", octets(before))
    print("arenas", octets(left))
    print("inboxes", octets(mapped("inbox")))
    print("descriptors", held)
    print("seen", seen, flush=True)
    os._exit(0)


def unread(port, what):
    """A connection with an answer that was not read when it was shut down."""
    s = line(port)
    s.sendall(what)
    while fcntl.ioctl(s, termios.FIONREAD, b"\0" * 4) != struct.pack("=i", len(what)):
        time.sleep(0.001)
    s.shutdown(socket.SHUT_RDWR)
    return s


def aside(port, user):
    """What a worker sees that was forked beside a connection whose octets were put aside, of one that its parent has put aside later."""
    def rings():
        with open("/proc/self/maps") as maps:
            found = [re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-s .*/dev/zero", line) for line in maps]
        return [(int(m[1], 16), int(m[2], 16)) for m in found if m and int(m[2], 16) - int(m[1], 16) == 8 << 20]

    first = unread(port, b"of the first")
    for _ in range(100):
        if rings():
            break
        # What is on its way by the kernel stays there.
        first.close()
        first = unread(port, b"of the first")
    print("aside", len(rings()), flush=True)
    heard, ready = os.pipe()
    go, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.setresuid(user, user, user)
        kept = rings()
        first.close()
        os.write(ready, b"x")
        os.read(go, 1)
        print("seen", sum(ctypes.string_at(at, to - at).count(SECRET) for at, to in kept), flush=True)
        os._exit(0)
    assert os.read(heard, 1) == b"x"
    first.close()
    later = [unread(port, SECRET) for _ in range(20)]
    os.close(told)
    assert os.waitpid(child, 0)[1] == 0
    print("read", sum(s.recv(100) == SECRET for s in later), flush=True)


def image(shared, ready):
    """The program that is executed."""
    s = socket.socket(fileno=0)
    for _ in range(40):
        talk(s, b"image")
    print("answers", 1)
    print("shared", sum(number in shared.split(",") for _, _, number in mapped("view")), flush=True)
    os.write(ready, b"x")
    os._exit(0)


def main():
    if sys.argv[1] == "image":
        return image(sys.argv[2], int(sys.argv[3]))
    port, mode, user = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if mode == "aside":
        return aside(port, user)
    lines = [line(port) for _ in range(2)]
    before = mapped("arena")
    old = {number for _, _, number in before}
    assert old, "nothing is shared"
    heard, ready = os.pipe()
    go, told = os.pipe()
    if mode == "atfork":
        in_child = ctypes.CFUNCTYPE(None)(lambda: os.setresuid(user, user, user))
        assert LIBC.__register_atfork(None, None, in_child, None) == 0
    if mode == "gains":
        gain()
    child = {"cloned": clone3, "handle": fork_by_handle}.get(mode, os.fork)()
    if child == 0:
        os.close(heard)
        os.close(told)
        os.set_inheritable(ready, True)
        work(lines, mode, user, before, ready, go)
    os.close(ready)
    assert os.read(heard, 1) == b"x", "the worker has ended"
    later = line(port)
    for _ in range(40):
        talk(later, SECRET)
        talk(lines[1], b"goes on")
    print("new", len({number for _, _, number in mapped("arena")} - old), flush=True)
    os.close(told)
    assert os.waitpid(child, 0)[1] == 0
    talk(later, b"and on")


main()
