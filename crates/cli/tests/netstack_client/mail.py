"""Datagrams of one socket in order, whole and once, in whatever way a program waits, while they change between rings and the pair.

mail.py THERE: an echo server of UDP is at port 7 there."""

import array
import fcntl
import os
import select
import socket
import subprocess
import sys
import termios
import threading

THERE = sys.argv[1]
AGAIN = b"again, over a descriptor that came from elsewhere"


def echo(s, first, many, receive):
    for n in range(first, first + many):
        assert s.send(b"%d" % n) == len(b"%d" % n)
    got = [int(receive()) for _ in range(many)]
    assert got == list(range(first, first + many)), got
    return first + many


def connected():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((THERE, 7))
    return s


def warm(s):
    n = 0
    for _ in range(300):
        n = echo(s, n, 1, lambda: s.recv(99))
    return n


def done(what):
    print(what, flush=True)


def in_turn():
    s = connected()
    warm(s)
    # Who started this looks at it.
    done("warm")
    seen = threading.Thread(target=sys.stdin.readline)
    seen.start()
    n = 0
    while seen.is_alive():
        n = echo(s, n, 1, lambda: s.recv(99))
    for round in range(200):
        n = echo(s, n, 1 + round % 40, lambda: s.recv(99))
    done("bursts")


def by_waits():
    s = connected()
    n = warm(s)
    poll, epoll = select.poll(), select.epoll()
    poll.register(s, select.POLLIN)
    epoll.register(s, select.EPOLLIN)

    def after(wait):
        def receive():
            assert wait()
            return s.recv(99, socket.MSG_DONTWAIT)
        return receive

    waits = [lambda: poll.poll(10000), lambda: epoll.poll(10), lambda: select.select([s], [], [], 10)[0]]
    for round in range(60):
        # Some are left in the ring when the wait begins.
        for m in range(n, n + 20):
            s.send(b"%d" % m)
        for m in range(n, n + 5):
            assert int(s.recv(99)) == m
        receive = after(waits[round % 3])
        for m in range(n + 5, n + 20):
            assert int(receive()) == m
        n += 20
        assert not poll.poll(0)
    done("waits")


def by_calls():
    s = connected()
    warm(s)
    for _ in range(20):
        for octets in (b"", b"x", bytes(range(256)) * 4, b"l" * 20000):
            s.send(octets)
            assert s.recv(65536, socket.MSG_PEEK) == octets
            room = array.array("i", [0])
            fcntl.ioctl(s, termios.FIONREAD, room)
            assert room[0] == len(octets)
            front, rest = bytearray(3), bytearray(30000)
            n, _, flags, name = s.recvmsg_into([front, rest])
            assert (bytes(front) + bytes(rest))[:n] == octets and flags == 0 and name == (THERE, 7)
        s.send(b"a long one")
        assert s.recvmsg(4)[::2] == (b"a lo", socket.MSG_TRUNC)
        s.send(b"a long one")
        assert s.recv_into(bytearray(2), 0, socket.MSG_TRUNC) == 10
        s.sendto(b"said to", (THERE, 7))
        assert s.recvfrom(99) == (b"said to", (THERE, 7))
        assert len(os.read(s.fileno(), 99) if os.write(s.fileno(), b"by write") else b"") == 8
    s.settimeout(0.05)
    try:
        s.recv(9)
        assert False
    except TimeoutError:
        pass
    done("calls")


def by_threads():
    s = connected()
    n = warm(s)
    seen, lock = [], threading.Lock()

    def read():
        while (octets := s.recv(99)) != b"end":
            with lock:
                seen.append(int(octets))
        s.send(b"end")

    readers = [threading.Thread(target=read) for _ in range(3)]
    [reader.start() for reader in readers]
    for m in range(1000):
        s.send(b"%d" % m)
        while len(seen) + 30 < m:
            pass
    while len(seen) < 1000:
        pass
    s.send(b"end")
    [reader.join() for reader in readers]
    assert sorted(seen) == list(range(1000))
    done("threads")


def by_processes():
    s = connected()
    warm(s)
    for m in range(20):
        s.send(b"%d" % m)
    assert [int(s.recv(99)) for _ in range(3)] == [0, 1, 2]
    child = os.fork()
    if child == 0:
        assert [int(s.recv(99)) for _ in range(3, 12)] == list(range(3, 12))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [int(s.recv(99)) for _ in range(12, 20)] == list(range(12, 20))
    echo(s, 0, 10, lambda: s.recv(99))
    done("fork")
    # To a program that knows nothing of rings, and one that takes the descriptor from a message.
    s = connected()
    warm(s)
    for m in range(10):
        s.send(b"%d" % m)
    assert int(s.recv(99)) == 0
    read = "import socket, sys; s = socket.socket(fileno=0); print([int(s.recv(99)) for _ in range(1, 10)] == list(range(1, 10)))"
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("BYPATH")}
    os.set_inheritable(s.fileno(), True)
    said = subprocess.run([sys.executable, "-c", read], stdin=s, env=clean, capture_output=True, text=True)
    assert said.stdout == "True\n", said
    done("exec")
    s = connected()
    warm(s)
    here, there = socket.socketpair()
    for m in range(10):
        s.send(b"%d" % m)
    assert int(s.recv(99)) == 0
    socket.send_fds(here, [b"x"], [s.fileno()])
    other = socket.socket(fileno=socket.recv_fds(there, 1, 1)[1][0])
    s.close()
    assert [int(other.recv(99)) for _ in range(1, 10)] == list(range(1, 10))
    other.send(AGAIN)
    assert other.recv(99) == AGAIN
    done("passed")


def for_many():
    all = [connected() for _ in range(80)]
    for s in all:
        echo(s, 0, 30, lambda: s.recv(99))
    [s.close() for s in all]
    all = [connected() for _ in range(80)]
    for s in all:
        echo(s, 0, 30, lambda: s.recv(99))
    done("many")


for part in (in_turn, by_waits, by_calls, by_threads, by_processes, for_many):
    part()
