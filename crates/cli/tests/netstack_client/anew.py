"""Sockets that outlive their service: anew.py WAY HOST, WAY being how the program waits: epoll, poll, or select with sockets that wait; inherited:
by epoll for those that another program has made.

It is told by lines of input that the service is gone, and that there is another one."""

import errno
import fcntl
import os
import select
import socket
import struct
import sys
import time

way, host, *inherited = sys.argv[1:]
if inherited:
    heard, mail = (socket.socket(fileno=int(fd)) for fd in inherited)
else:
    heard = socket.create_server((host, 0))
    mail = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    mail.bind((host, 0))
    if way == "inherited":
        fds = [heard.fileno(), mail.fileno()]
        for fd in fds:
            os.set_inheritable(fd, True)
        os.execv(sys.executable, [sys.executable, *sys.argv, *map(str, fds)])
heard.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
mail.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 7)
for one in (heard, mail):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 99, 0))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
    one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
heard.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
names = heard.getsockname(), mail.getsockname()
partner = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
partner.connect(names[1])
sockets = heard, mail, partner
for s in sockets:
    s.setblocking(way == "select")
calls = {heard.fileno(): heard.accept, mail.fileno(): lambda: mail.recvfrom(9), partner.fileno(): lambda: partner.recv(9)}
if way in ("epoll", "inherited"):
    waits = select.epoll()
    for fd in calls:
        waits.register(fd, select.EPOLLIN)
elif way == "poll":
    waits = select.poll()
    for fd in calls:
        waits.register(fd, select.POLLIN)


def ready(ms):
    if way == "select":
        return select.select(list(calls), [], [], ms / 1000)[0]
    return [fd for fd, _ in waits.poll(ms if way == "poll" else ms / 1000)]


def told(call, *args):
    try:
        return call(*args)
    except OSError as e:
        return errno.errorcode[e.errno]


STREAMS = [(socket.SOL_SOCKET, n) for n in (2, 3, 4, 7, 8, 9, 13, 15, 18, 20, 21, 30, 38, 39, 57, 66)] + [(6, 1), (6, 4), (6, 18), (0, 1), (0, 2)]
DATAGRAMS = [(socket.SOL_SOCKET, n) for n in (2, 3, 4, 6, 7, 8, 18, 20, 21, 30, 38, 39, 57, 66)] + [(0, 1), (0, 2), (0, 8)]


def options():
    """What each socket tells of its options, as octets."""
    all = [(s, option) for s, list in ((heard, STREAMS), (mail, DATAGRAMS), (partner, DATAGRAMS)) for option in list]
    return [(s.fileno(), option, told(s.getsockopt, *option, 16)) for s, option in all]


def connects():
    """Another process, which asks until it is answered."""
    while True:
        try:
            with socket.create_connection(names[0]) as client:
                client.sendall(b"x")
                return os._exit(0 if client.recv(9) == b"y" else 1)
        except ConnectionRefusedError:
            time.sleep(0.02)


before = options()
print("up", flush=True)
sys.stdin.readline()
failed, wakes, end = {fd: [] for fd in calls}, 0, time.monotonic() + 1.5
while time.monotonic() < end:
    for fd in ready(100):
        wakes += 1
        failed[fd].append(told(calls[fd]))
print(wakes <= 12, *[sorted(set(some)) for some in failed.values()])
print((heard.getsockname(), mail.getsockname()) == names, told(mail.sendto, b"x", names[1]))
print([(*a, b[2]) for a, b in zip(before, options()) if a != b])
heard.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
mail.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 8)
mail.setsockopt(socket.SOL_SOCKET, 66, struct.pack("qq", 77, 0))
print(heard.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), mail.getsockopt(socket.IPPROTO_IP, socket.IP_TTL),
      struct.unpack("qq", mail.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)),
      told(mail.setsockopt, socket.IPPROTO_IP, socket.IP_TTL, 300), told(heard.getsockopt, socket.SOL_SOCKET, 999))
def counts(s):
    """SIOCOUTQ, SIOCOUTQNSD, FIONREAD."""
    return [told(lambda: struct.unpack("i", fcntl.ioctl(s, request, bytes(4)))[0]) for request in (0x5411, 0x894B, 0x541B)]


# As the kernel's sockets tell it while their link is down.
print(*map(counts, sockets))
print("alone", flush=True)
sys.stdin.readline()

if os.fork() == 0:
    connects()
accepted = came = None
while accepted is None or came != b"again":
    for fd in ready(1000):
        got = told(calls[fd])
        if fd == heard.fileno() and isinstance(got, tuple):
            accepted = got[0]
            accepted.setblocking(True)
        elif fd == mail.fileno() and isinstance(got, tuple):
            came = got[0]
    # Until its receiver is there again what is sent is lost.
    told(partner.send, b"again")
accepted.recv(1)
accepted.sendall(b"y")
print(os.waitpid(-1, 0)[1], heard.getsockname() == names[0])
print(heard.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), mail.getsockopt(socket.IPPROTO_IP, socket.IP_TTL), heard.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
print(partner.getpeername() == names[1], heard.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
