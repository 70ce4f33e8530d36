"""Connections whose service is killed while their program waits, each in another way: bereft.py HOST PORT MUTE

Who listens at PORT echoes, who does at MUTE reads nothing. Lines: "ready" when all have been answered often enough to have rings; for each way its name
and what its calls say from the first one after the wait, as told by each wait; and, once there was a line of input, the same of connections that were left
alone until then.
"""

import errno
import os
import select
import socket
import sys
import threading

# Longer than the test waits for all of them (s).
LONG = 100
ROUNDS = 100
# An edge may be one of before, which leaves nothing to read.
VAIN = 50


def said(call, *arguments):
    try:
        return call(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]


def by_recv(s):
    pass


def by_poll(s):
    p = select.poll()
    p.register(s, select.POLLIN)
    assert p.poll(LONG * 1000)


def by_select(s):
    assert select.select([s], [], [], LONG)[0]


def by_level(s):
    with select.epoll() as e:
        e.register(s, select.EPOLLIN)
        assert e.poll(LONG)


def by_edge(s):
    with select.epoll() as e:
        e.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
        # That there is room is told first.
        while not any(events & select.EPOLLIN for _, events in e.poll(LONG)):
            pass


def reads(s, wait):
    """What a receive says once the wait is over, what the next one says, and what a send says then."""
    s.setblocking(wait is by_recv)
    for _ in range(VAIN):
        wait(s)
        first = said(s.recv, 100)
        if first != "EAGAIN":
            break
    return first, said(s.recv, 100), said(s.send, b"x")


def splices(s, _):
    read, write = os.pipe()
    return said(os.splice, s.fileno(), write, 100), said(s.recv, 100), said(s.send, b"x")


def asks(s, _):
    """SO_ERROR is read in place of octets."""
    by_poll(s)
    return said(os.strerror, s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)), said(s.recv, 100), said(s.send, b"x")


def has_unread(s, _):
    """Octets came before, and are still to be read."""
    p = select.poll()
    p.register(s, 0)
    assert p.poll(LONG * 1000)
    return (said(s.recv, 100), *reads(s, by_poll))


def writes(s, wait):
    """It has filled everything that there is, and goes on as soon as it may."""
    s.setblocking(wait is None)
    p = select.poll()
    p.register(s, select.POLLOUT)
    first = 1
    while isinstance(first, int) or first == "EAGAIN":
        first = said(s.send, bytes(100_000))
        if first == "EAGAIN":
            assert p.poll(LONG * 1000)
    return first, said(s.send, b"x"), said(s.recv, 100)


host, port, mute = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WAYS = {
    "recv": (reads, by_recv),
    "poll": (reads, by_poll),
    "select": (reads, by_select),
    "level": (reads, by_level),
    "edge": (reads, by_edge),
    "splice": (splices, None),
    "error": (asks, None),
    "unread": (has_unread, None),
    "send": (writes, None),
    "room": (writes, by_poll),
}


def connects(name):
    s = socket.create_connection((host, mute if name in ("send", "room") else port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def talks(s):
    for _ in range(ROUNDS):
        s.sendall(b"octets")
        got = 0
        while got < 6:
            got += len(s.recv(6 - got))


def waits(name, s):
    calls, how = WAYS[name]
    # As one piece: others say theirs at the same time.
    os.write(1, " ".join(map(str, (name, *calls(s, how)))).encode() + b"\n")


connections = {name: connects(name) for name in WAYS}
late = {name: connects(name) for name in ("late recv", "late send")}
for name, s in [*connections.items(), *late.items()]:
    if name not in ("send", "room"):
        talks(s)
connections["unread"].sendall(b"last")
select.select([connections["unread"]], [], [], LONG)
threads = [threading.Thread(target=waits, args=one) for one in connections.items()]
for thread in threads:
    thread.start()
print("ready", flush=True)
for thread in threads:
    thread.join()
print("all", flush=True)
sys.stdin.readline()
one, other = late.values()
print("late recv", said(one.recv, 100), said(one.recv, 100), said(one.send, b"x"))
# Who writes to a ring looks whether the other end is there after some octets only.
first = next((failed for _ in range(5000) if isinstance(failed := said(other.send, b"x"), str)), None)
print("late send", first, said(other.send, b"x"), said(other.recv, 100))
