"""Calls on sockets of datagrams, whose answers are the same on the kernel's and on a service's.

datagrams.py HERE THERE: HERE is this host's own address, THERE that of an echo server of UDP at port 7 of another one."""

import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

HERE, THERE = sys.argv[1:3]
ECHO = (THERE, 7)
IP, V6, SOL, UDP = socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET, 17
IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_MTU_DISCOVER, UDP_SEGMENT, SO_TIMESTAMP = 8, 12, 13, 10, 103, 29
libc = ctypes.CDLL(None, use_errno=True)


def say(*what):
    print(*what, flush=True)


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except OSError as e:
        return errno.errorcode.get(e.errno, e)


def soon(call, *arguments):
    """What it gives once there is something: an error may come after the answer to what was sent later, on another processor."""
    end = time.monotonic() + 10
    while True:
        try:
            got = call(*arguments)
        except BlockingIOError:
            got = None
        if got or time.monotonic() > end:
            return got
        time.sleep(0.001)


def udp(*bound, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    if bound:
        s.bind(bound)
    return s


def until(s, events):
    p = select.poll()
    p.register(s, events)
    return bool(p.poll(10000))


def names():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    say(s.getsockname(), outcome(s.getpeername))
    say("type", s.getsockopt(SOL, socket.SO_TYPE) == socket.SOCK_DGRAM, s.getsockopt(SOL, socket.SO_PROTOCOL))
    s.connect(ECHO)
    say(s.getsockname()[0] == HERE, s.getsockname()[1] > 0, s.getpeername() == ECHO)
    say("type", s.getsockopt(SOL, socket.SO_TYPE) == socket.SOCK_DGRAM, s.getsockopt(SOL, socket.SO_PROTOCOL),
        s.getsockopt(SOL, socket.SO_DOMAIN), s.getsockopt(SOL, socket.SO_ACCEPTCONN))
    say("again", outcome(s.connect, (THERE, 9)), s.getpeername() == (THERE, 9))
    say("bind", outcome(s.bind, (HERE, 0)))
    say("disconnect", libc.connect(s.fileno(), bytes(16), 16), outcome(s.getpeername), s.getsockname())
    say("bind", outcome(s.bind, (HERE, 0)), s.getsockname()[0] == HERE)
    s = udp("", 0)
    port = s.getsockname()[1]
    say("any", s.getsockname()[0], port > 0)
    s.connect(ECHO)
    say("connected", s.getsockname() == (HERE, port))
    libc.connect(s.fileno(), bytes(16), 16)
    say("disconnected", s.getsockname())
    s = udp("", 777)
    s.connect(ECHO)
    libc.connect(s.fileno(), bytes(16), 16)
    say("disconnected", s.getsockname())
    say("listen", outcome(s.listen), outcome(s.accept))
    say("ours", outcome(udp().bind, ("192.0.2.1", 0)))
    s = udp(HERE, 0)
    say("twice", outcome(udp().bind, s.getsockname()))
    one, two = udp(), udp()
    for t in (one, two):
        t.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    one.bind((HERE, 0))
    say("shared", outcome(two.bind, one.getsockname()))


def exchange():
    s = udp()
    say("before", s.getsockname())
    say(s.sendto(b"octets", ECHO), s.recvfrom(100) == (b"octets", ECHO))
    say("after", s.getsockname()[0], s.getsockname()[1] > 0)
    s.sendto(b"", ECHO)
    say("empty", s.recvfrom(100) == (b"", ECHO))
    s.sendto(b"BYPADGR1", ECHO)
    say("magic", s.recv(100))
    for size in (1472, 1473, 30000, 65507):
        octets = os.urandom(size)
        say(size, s.sendto(octets, ECHO), s.recv(70000) == octets)
    say("too long", outcome(s.sendto, bytes(65508), ECHO))
    say("nobody", outcome(s.send, b"x"))
    say("port 0", outcome(s.sendto, b"x", (THERE, 0)))
    say("everybody", outcome(s.sendto, b"x", ("10.9.0.255", 7)))
    say("no way", outcome(s.sendto, b"x", ("192.0.2.1", 7)), outcome(udp().connect, ("192.0.2.1", 7)))
    say("family", libc.sendto(s.fileno(), b"x", 1, 0, struct.pack("=H26x", socket.AF_INET6), 28), errno.errorcode[ctypes.get_errno()])
    say("short", libc.sendto(s.fileno(), b"x", 1, 0, struct.pack("=H26x", socket.AF_INET), 8), errno.errorcode[ctypes.get_errno()])
    say("nowhere", libc.sendto(s.fileno(), b"x", 1, 0, None, 16), errno.errorcode[ctypes.get_errno()])
    s.connect(ECHO)
    say(s.send(b"connected"), s.recvfrom(100) == (b"connected", ECHO))
    say(os.write(s.fileno(), b"written"), os.read(s.fileno(), 100))
    say(s.sendto(b"to", ECHO), s.recv(2))
    s.sendmsg([b"a", b"", b"bc"])
    say(os.readv(s.fileno(), [bytearray(2), bytearray(5)]))
    s.sendmsg([bytes([n]) for n in range(200)])
    room = [bytearray(1) for _ in range(150)]
    say("many pieces", s.recvmsg_into(room)[0], b"".join(room) == bytes(range(150)))
    for size in (1, 50, 111, 112, 113, 300, 5000):
        octets = os.urandom(size)
        s.send(octets)
        room = [bytearray(size // 3), bytearray(), bytearray(size // 3 + 1), bytearray(size)]
        say(size, s.recvmsg_into(room)[0], b"".join(room)[:size] == octets)
    say("none", outcome(s.recv, 1, socket.MSG_DONTWAIT), outcome(s.recv, 1, 0x2000))


def flags():
    s = udp()
    s.connect(ECHO)
    for t in (s, udp()):
        t.sendto(b"12345", ECHO)
        until(t, select.POLLIN)
        count = array.array("i", [0])
        fcntl.ioctl(t, termios.FIONREAD, count)
        say("to read", count[0])
        say("peek", t.recv(3, socket.MSG_PEEK), t.recv_into(bytearray(2), 2, socket.MSG_PEEK | socket.MSG_TRUNC))
        octets, _, said, name = t.recvmsg(2)
        say("cut", octets, said == socket.MSG_TRUNC, name == ECHO)
        fcntl.ioctl(t, termios.FIONREAD, count)
        say("to read", count[0], outcome(t.recv, 1, socket.MSG_DONTWAIT))
        t.sendto(b"12345", ECHO)
        say("whole", t.recv_into(bytearray(2), 2, socket.MSG_TRUNC))
    s.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 0, 20000))
    say("in time", outcome(s.recv, 1))
    s.setblocking(False)
    say("at once", outcome(s.recv, 1))


def errors():
    s = udp()
    s.connect((THERE, 9))
    s.send(b"x")
    say("comes", until(s, select.POLLIN))
    say("error", outcome(s.recv, 10), outcome(s.recv, 10, socket.MSG_DONTWAIT))
    s.send(b"x")
    until(s, select.POLLIN)
    say("asked", errno.errorcode[s.getsockopt(SOL, socket.SO_ERROR)], s.getsockopt(SOL, socket.SO_ERROR))
    say("and gone", outcome(s.recv, 10, socket.MSG_DONTWAIT))
    s.send(b"x")
    until(s, select.POLLIN)
    say("send", outcome(s.send, b"x"))
    s.send(b"x")
    until(s, select.POLLIN)
    say("peek", outcome(s.recv, 10, socket.MSG_PEEK), outcome(s.recv, 10, socket.MSG_DONTWAIT))
    s.connect(ECHO)
    s.send(b"good")
    say("again", s.recv(10))
    s = udp()
    s.sendto(b"x", (THERE, 9))
    s.sendto(b"good", ECHO)
    say("who is not connected", s.recv(10), s.getsockopt(SOL, socket.SO_ERROR))


def round_trip():
    """What was said of what was sent before has come."""
    s = udp()
    s.sendto(b"x", ECHO)
    s.recv(10)


def port_0():
    s = udp()
    say("port 0", outcome(s.connect, (THERE, 0)), s.getsockname()[0] == HERE, outcome(s.getpeername))
    say(outcome(s.send, b"x"), outcome(s.sendto, b"x", (THERE, 0)))
    round_trip()
    say("refused", outcome(s.recv, 1, socket.MSG_DONTWAIT))
    s.connect(ECHO)
    say("and then", s.send(b"x"), s.recv(10), s.getpeername() == ECHO)


def queue():
    errors, recverr = 0x2000, 11
    s = udp()
    s.bind(("", 0))

    def told(room=300, *more):
        octets, told, said, name = soon(s.recvmsg, 100, room, errors, *more)
        say(octets, said, name == (THERE, 9))
        for level, kind, data in told:
            if (level, kind, len(data)) == (IP, recverr, 32):
                family, port, who = struct.unpack("=HH4s", data[16:24])
                data = struct.unpack("=IBBBBII", data[:16]), family, port, socket.inet_ntoa(who) == THERE
            say(level, kind, data)

    def lost(octets):
        s.sendto(octets, (THERE, 9))
        round_trip()

    lost(b"not asked for")
    say("nothing", outcome(s.recvmsg, 10, 200, errors))
    s.setsockopt(IP, recverr, 1)
    lost(b"first")
    told()
    say("then", outcome(s.recv, 10, socket.MSG_DONTWAIT), s.getsockopt(SOL, socket.SO_ERROR), outcome(s.recvmsg, 10, 200, errors))
    s.setsockopt(IP, IP_RECVTTL, 1)
    lost(b"second")
    say("error", errno.errorcode[soon(s.getsockopt, SOL, socket.SO_ERROR)])
    lost(b"third" * 30)
    told()
    say("next", errno.errorcode[soon(s.getsockopt, SOL, socket.SO_ERROR)])
    told()
    say("then", outcome(s.recv, 10, socket.MSG_DONTWAIT), outcome(s.recvmsg, 10, 200, errors))
    lost(b"little room")
    octets, _, said, _ = soon(s.recvmsg, 3, 30, errors)
    say(octets, said)
    lost(b"")
    waits = select.poll()
    waits.register(s, select.POLLIN | select.POLLERR)
    say("waits", waits.poll(10000)[0][1])
    told()
    say("then", waits.poll(0))
    s.sendto(b"good", ECHO)
    say("waits", waits.poll(10000)[0][1])
    say(s.recv(10))
    lost(b"not wanted any more")
    s.setsockopt(IP, recverr, 0)
    say("off", outcome(s.recvmsg, 10, 200, errors))
    s = udp()
    s.setsockopt(IP, recverr, 1)
    s.connect((THERE, 9))
    s.send(b"connected")
    round_trip()
    told()
    say("then", outcome(s.send, b"x"))
    mapped = "::ffff:" + THERE
    s = udp(family=socket.AF_INET6)
    s.setsockopt(IP, recverr, 1)
    s.setsockopt(V6, 25, 1)
    s.sendto(b"of IPv6", (mapped, 9))
    round_trip()
    octets, beside, said, name = soon(s.recvmsg, 100, 300, errors)
    say(octets, said, name[:2] == (mapped, 9))
    for level, kind, data in beside:
        say(level, kind, struct.unpack("=IBBBBIIH", data[:18]), data[24:40] == socket.inet_pton(socket.AF_INET6, mapped), len(data))


def beside():
    s = udp("", 0)
    for name in (IP_PKTINFO, IP_RECVTTL, IP_RECVTOS):
        s.setsockopt(IP, name, 1)
    s.setsockopt(SOL, SO_TIMESTAMP, 1)
    for t in (s, udp()):
        t.setsockopt(IP, IP_PKTINFO, 1)
        t.setsockopt(IP, socket.IP_TTL, 44)
        t.sendto(b"x", ECHO)
        octets, told, said, name = t.recvmsg(10, 200)
        say(octets, said, name == ECHO)
        for level, kind, data in sorted(told):
            if (level, kind) == (IP, IP_PKTINFO):
                data = (socket.inet_ntoa(data[4:8]) == HERE, socket.inet_ntoa(data[8:]) == HERE, len(data))
            elif level == SOL:
                data = (len(data), struct.unpack("ll", data)[0] > 1_700_000_000)
            say(level, kind, data)
    say("no room", [(k, len(d)) for _, k, d in s.recvmsg(10, 10)[1]] if s.sendto(b"y", ECHO) else None)
    s.sendto(b"z", ECHO)
    octets, told, said, _ = s.recvmsg(10, 40)
    say("little room", said & socket.MSG_CTRUNC == socket.MSG_CTRUNC, len(told))
    source = struct.pack("=i4s4x", 0, socket.inet_aton(HERE))
    say(s.sendmsg([b"from"], [(IP, IP_PKTINFO, source)], 0, ECHO), s.recv(10))
    say(s.sendmsg([b"ttl"], [(IP, socket.IP_TTL, struct.pack("i", 9))], 0, ECHO), s.recv(10))
    say(outcome(s.sendmsg, [b"x"], [(IP, socket.IP_TTL, struct.pack("i", 300))], 0, ECHO))
    say(s.sendmsg([b"12345"], [(UDP, UDP_SEGMENT, struct.pack("H", 2))], 0, ECHO), s.recv(9), s.recv(9), s.recv(9))


def options():
    s = udp()
    before = [
        (SOL, socket.SO_REUSEADDR, 1),
        (SOL, socket.SO_BROADCAST, 1),
        (SOL, socket.SO_RCVBUF, 100000),
        (SOL, socket.SO_SNDBUF, 90000),
        (IP, socket.IP_TOS, 16),
        (IP, socket.IP_TTL, 33),
        (IP, IP_PKTINFO, 1),
        (IP, IP_MTU_DISCOVER, 2),
        (IP, socket.IP_MULTICAST_TTL, 5),
        (IP, socket.IP_MULTICAST_LOOP, 0),
    ]
    for level, name, value in before:
        s.setsockopt(level, name, value)
    s.bind((HERE, 0))
    for level, name, value in before:
        say("option", level, name, s.getsockopt(level, name))
    s.connect(ECHO)
    if (result := outcome(s.send, bytes(1473))) == 1473:
        # It was not known yet, and is told now.
        until(s, select.POLLIN)
        result = outcome(s.recv, 1)
    say("too long", result)
    say("mtu", s.getsockopt(IP, 14))
    say("none such", outcome(s.getsockopt, IP, 999), outcome(s.setsockopt, SOL, 999, 1), outcome(s.getsockopt, 6, 1))
    for value in (300, -2):
        say("bad", outcome(s.setsockopt, IP, socket.IP_TTL, value), outcome(s.setsockopt, IP, socket.IP_MULTICAST_TTL, value))
    say("usual", udp(HERE, 0).getsockopt(SOL, socket.SO_ERROR), udp(HERE, 0).getsockopt(IP, socket.IP_MULTICAST_TTL))
    s = udp("", 0)
    group = socket.inet_aton("239.1.2.3") + socket.inet_aton(HERE)
    say("join", outcome(s.setsockopt, IP, socket.IP_ADD_MEMBERSHIP, group), outcome(s.setsockopt, IP, socket.IP_ADD_MEMBERSHIP, group))
    s.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(HERE))
    say("from", s.getsockopt(IP, socket.IP_MULTICAST_IF, 4) == socket.inet_aton(HERE))
    s.sendto(b"all", ("239.1.2.3", s.getsockname()[1]))
    say("heard", s.recv(10))
    say("leave", outcome(s.setsockopt, IP, socket.IP_DROP_MEMBERSHIP, group), outcome(s.setsockopt, IP, socket.IP_DROP_MEMBERSHIP, group))
    say("no group", outcome(s.setsockopt, IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(HERE) * 2))


def waiting():
    s = udp()
    e = select.epoll()
    e.register(s, select.EPOLLIN)
    s.sendto(b"x", ECHO)
    say("registered before", dict(e.poll(10)) == {s.fileno(): select.EPOLLIN}, s.recv(10))
    e.modify(s, select.EPOLLIN | select.EPOLLOUT)
    say("room", dict(e.poll(10))[s.fileno()] & select.EPOLLOUT == select.EPOLLOUT)
    say("select", select.select([], [s], [], 10)[1] == [s], select.select([s], [], [], 0)[0] == [])
    got = []
    t = threading.Thread(target=lambda: got.append(s.recv(10)))
    t.start()
    s.sendto(b"thread", ECHO)
    t.join()
    say(got)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    say("interrupted", libc.recv(s.fileno(), ctypes.create_string_buffer(1), 1, 0), errno.errorcode[ctypes.get_errno()])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)


def ends():
    s = udp()
    s.connect(ECHO)
    s.shutdown(socket.SHUT_WR)
    say("no more", outcome(s.send, b"x"))
    s = udp()
    s.connect(ECHO)
    s.shutdown(socket.SHUT_RD)
    say("nothing more", s.recv(10), outcome(s.shutdown, 3))
    s = udp(HERE, 0)
    say("nobody", outcome(s.shutdown, socket.SHUT_RD), s.recv(10))


def processes():
    s = udp()
    s.connect(ECHO)
    if os.fork() == 0:
        s.send(b"from the child")
        say("child", s.recv(100), s.getpeername() == ECHO)
        os._exit(0)
    os.wait()
    s.send(b"from the parent")
    say("parent", s.recv(100))
    heir = "import socket,sys; s=socket.socket(fileno=int(sys.argv[1])); print('heir', s.family, s.type, s.getpeername()[1], flush=True); s.send(b'heir'); print(s.recvfrom(9)[0], flush=True)"
    if os.fork() == 0:
        os.set_inheritable(s.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-c", heir, str(s.fileno())])
    os.wait()
    # One that knows nothing: no library, and calls of its own.
    stranger = "import os,sys; n=int(sys.argv[1]); print(os.write(n, b'plain'), os.read(n, 100), flush=True)"
    if os.fork() == 0:
        os.set_inheritable(s.fileno(), True)
        os.environ.pop("LD_PRELOAD", None)
        os.execv(sys.executable, [sys.executable, "-c", stranger, str(s.fileno())])
    os.wait()
    copy = os.dup(s.fileno())
    s.close()
    t = socket.socket(fileno=copy)
    t.send(b"copy")
    say(t.recv(10))


def six():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(("::", 0))
    say(s.getsockname()[0], s.getsockname()[1] > 0)
    s.sendto(b"mapped", ("::ffff:" + THERE, 7))
    octets, name = s.recvfrom(100)
    say(octets, name == ("::ffff:" + THERE, 7, 0, 0))
    say("plain", libc.sendto(s.fileno(), b"x", 1, 0, struct.pack("=H", socket.AF_INET) + struct.pack(">H4s8x", 7, socket.inet_aton(THERE)), 16), s.recv(10))
    s.connect(("::ffff:" + THERE, 7))
    say(s.getsockname()[0] == "::ffff:" + HERE, s.send(b"six"), s.recv(10))
    only = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    only.setsockopt(V6, socket.IPV6_V6ONLY, 1)
    only.bind(("::", 0))
    say(only.getsockopt(V6, socket.IPV6_V6ONLY), outcome(only.sendto, b"x", ("::ffff:" + THERE, 7)))


def several():
    class Iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    class Header(ctypes.Structure):
        _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Iovec)), ("iovlen", ctypes.c_size_t),
                    ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int), ("pad", ctypes.c_uint), ("len", ctypes.c_uint)]

    s = udp()
    s.connect(ECHO)
    rooms = [ctypes.create_string_buffer(b"%d" % n, 20) for n in range(4)]
    iovs = [Iovec(ctypes.addressof(room), n + 1) for n, room in enumerate(rooms)]
    all_of_them = (Header * 4)(*[Header(None, 0, ctypes.pointer(iov), 1) for iov in iovs])
    say("sent", libc.sendmmsg(s.fileno(), all_of_them, 4, 0), [one.len for one in all_of_them])
    count = libc.recvmmsg(s.fileno(), all_of_them, 1, 0, None)
    say("came", count, all_of_them[0].len, rooms[0].raw[:1])
    count = libc.recvmmsg(s.fileno(), ctypes.byref(all_of_them, ctypes.sizeof(Header)), 3, 0, None)
    say("came", count, [one.len for one in all_of_them], [room.raw[:1] for room in rooms])
    say("none", libc.recvmmsg(s.fileno(), all_of_them, 2, socket.MSG_DONTWAIT, None), errno.errorcode[ctypes.get_errno()])


def near():
    heard = udp("127.0.0.1", 0)
    for bound in ((), ("", 0)):
        for connects in (False, True):
            s = udp(*bound)
            s.setsockopt(IP, socket.IP_TTL, 17)
            e = select.epoll()
            e.register(s, select.EPOLLIN)
            if connects:
                s.connect(heard.getsockname())
            say("near", s.sendto(b"near", heard.getsockname()), heard.recv(10), s.getsockopt(IP, socket.IP_TTL))
            s.setblocking(False)
            heard.sendto(b"back", ("127.0.0.1", s.getsockname()[1]))
            say("back", dict(e.poll(10)) == {s.fileno(): select.EPOLLIN}, s.recv(10))
    # One that has a port, or has sent elsewhere, stays where it is.
    s = udp()
    s.sendto(b"x", ECHO)
    say(s.recv(10))


# What waits for ever does not.
signal.alarm(60)
for part in (names, exchange, flags, errors, port_0, queue, beside, options, waiting, ends, processes, six, several, near):
    say("--", part.__name__)
    try:
        part()
    except Exception as e:
        say("failed", type(e).__name__, e)
