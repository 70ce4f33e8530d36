"""twins.py: a program has two TCP connections with equal addresses, of two network namespaces, and is in the second one. The other ends are two programs, each in one of the
namespaces, who say from which. Prints of how many questions it has had answers to from the right one."""
import ctypes
import os
import socket
import subprocess
import sys

CLONE_NEWNET = 0x40000000
SERVER, CLIENT = ("127.0.0.1", 9400), ("127.0.0.1", 9401)
QUESTIONS = 2000
c = ctypes.CDLL(None)


def up():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, env={})


def client(name, ready, go):
    """In a namespace of its own, or this one."""
    if name == b"other":
        assert c.unshare(CLONE_NEWNET) == 0
        up()
    os.write(ready, b"r")
    assert os.read(go, 1) == b"g"
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(CLIENT)
        s.connect(SERVER)
        answers = s.makefile("rb")
        for number in range(QUESTIONS):
            s.sendall(b"%s %d\n" % (name, number))
            answer = answers.readline()
            assert answer == b"to %s %d\n" % (name, number), answer


def start(name):
    (ready, is_ready), (goes, go) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        client(name, is_ready, goes)
        sys.stdout.flush()
        os._exit(0)
    assert os.read(ready, 1) == b"r"
    return pid, go


def accept(go):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(SERVER)
        listener.listen()
        os.write(go, b"g")
        return listener.accept()[0]


up()
pids, goes = zip(*[start(name) for name in (b"one", b"other")])
connections = [accept(goes[0])]
assert c.setns(os.open("/proc/%d/ns/net" % pids[1], os.O_RDONLY), CLONE_NEWNET) == 0
connections.append(accept(goes[1]))
right = 0
files = [connection.makefile("rb") for connection in connections]
for number in range(QUESTIONS):
    for name, file, connection in zip((b"one", b"other"), files, connections):
        right += file.readline() == b"%s %d\n" % (name, number)
        connection.sendall(b"to %s %d\n" % (name, number))
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
print("of the right one:", right)
