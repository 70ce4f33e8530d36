"""Many connections of one process, in one loop.

crowd.py server HOST PORT           echoes until SIGTERM. Lines: "listening", "open N" whenever all connections are gone, N being how many there were
crowd.py client HOST PORT N SIZE    so many connections at once, each sends as many octets of its own, and wants them back. Lines: "connected N",
                                    "good N"; they stay open until the end of the standard input
crowd.py load HOST PORT N           echoes without an end, until the last connection is lost. Lines: "flows", "lost N"
"""

import errno
import hashlib
import resource
import select
import signal
import socket
import sys
import time

LONG = 60


def say(*words):
    print(*words, flush=True)


class Crowd:
    """Sockets that are written to and read from as they are ready."""

    def __init__(self):
        self.epoll = select.epoll()
        self.all = {}

    def add(self, s, octets=b""):
        s.setblocking(False)
        self.all[s.fileno()] = [s, octets]
        self.epoll.register(s, select.EPOLLIN | (select.EPOLLOUT if octets else 0))

    def drop(self, fd):
        self.epoll.unregister(fd)
        self.all.pop(fd)[0].close()

    def give(self, fd, octets):
        one = self.all[fd]
        one[1] += octets
        try:
            one[1] = one[1][one[0].send(one[1]):]
        except BlockingIOError:
            pass
        self.epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if one[1] else 0))

    def take(self, fd):
        """Octets; None: none yet; b"": the end."""
        try:
            return self.all[fd][0].recv(65536)
        except BlockingIOError:
            return None


def server(host, port):
    heard = socket.create_server((host, port), backlog=1024)
    heard.setblocking(False)
    crowd, seen = Crowd(), 0
    crowd.epoll.register(heard, select.EPOLLIN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    say("listening")
    while True:
        for fd, events in crowd.epoll.poll():
            if fd == heard.fileno():
                try:
                    while True:
                        crowd.add(heard.accept()[0])
                        seen += 1
                except BlockingIOError:
                    pass
                continue
            try:
                octets = crowd.take(fd)
                if octets is not None or events & select.EPOLLOUT:
                    crowd.give(fd, octets or b"")
            except OSError:
                octets = b""
            if octets == b"" and events & ~select.EPOLLOUT:
                crowd.drop(fd)
                if not crowd.all:
                    say("open", seen)


def connect(host, port):
    s = socket.create_connection((host, port), timeout=LONG)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def client(host, port, count, size):
    sums, got, crowd = {}, {}, Crowd()
    for n in range(count):
        s = connect(host, port)
        octets = hashlib.shake_128(b"%d" % n).digest(size)
        sums[s.fileno()], got[s.fileno()] = hashlib.md5(octets).digest(), [0, hashlib.md5()]
        crowd.add(s, octets)
    say("connected", count)
    good, end = 0, time.monotonic() + LONG
    while good < count:
        assert time.monotonic() < end, f"{count - good} of {count} have not got their octets back"
        for fd, events in crowd.epoll.poll(1):
            octets = crowd.take(fd)
            assert octets != b"", "an early end"
            if octets:
                got[fd][0] += len(octets)
                got[fd][1].update(octets)
                if got[fd][0] == size:
                    assert got[fd][1].digest() == sums[fd], "other octets"
                    good += 1
            if events & select.EPOLLOUT:
                crowd.give(fd, b"")
    say("good", good)
    sys.stdin.read()


def load(host, port, count):
    crowd, moved, flows, lost = Crowd(), 0, False, 0
    for _ in range(count):
        crowd.add(connect(host, port), b"octets " * 500)
    while crowd.all:
        for fd, events in crowd.epoll.poll():
            try:
                octets = crowd.take(fd)
                if octets or events & select.EPOLLOUT:
                    crowd.give(fd, octets or b"")
            except OSError as e:
                assert e.errno in (errno.ECONNRESET, errno.EPIPE), e
                octets = b""
            if octets == b"":
                crowd.drop(fd)
                lost += 1
            moved += len(octets or b"")
        if moved > 1_000_000 and not flows:
            flows = True
            say("flows")
    say("lost", lost)


limits = resource.getrlimit(resource.RLIMIT_NOFILE)
if limits[0] < min(10_000, limits[1]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(10_000, limits[1]), limits[1]))
{"server": server, "client": client, "load": load}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
