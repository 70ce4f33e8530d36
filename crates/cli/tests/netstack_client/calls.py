"""Socket calls, and what came of them, one line each: the same with kernel sockets and with a service's.

calls.py ADDRESS: of this host, or the service's. Numbers that the kernel chooses are left out.
"""

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

HERE = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)


def say(what, *values):
    print(what + ":", *values, flush=True)


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except socket.timeout:
        return "timeout"
    except OSError as e:
        return errno.errorcode.get(e.errno, e.errno)


def listener(backlog=8):
    s = socket.socket()
    s.bind((HERE, 0))
    s.listen(backlog)
    return s


def pair(backlog=8):
    heard = listener(backlog)
    client = socket.create_connection(heard.getsockname())
    server, _ = heard.accept()
    heard.close()
    return client, server


def ready(s, mask=select.POLLIN | select.POLLOUT | select.POLLRDHUP, timeout=5000):
    p = select.poll()
    p.register(s, mask)
    got = p.poll(timeout)
    names = [n for n in ("POLLIN", "POLLOUT", "POLLRDHUP", "POLLHUP", "POLLERR") if got and got[0][1] & getattr(select, n)]
    return "|".join(names) or "nothing"


def until(s, mask):
    return ready(s, mask)


def names():
    heard = listener()
    say("listener", heard.getsockname()[0] == HERE, heard.getsockname()[1] != 0, outcome(heard.getpeername))
    client = socket.socket()
    client.connect(heard.getsockname())
    server, name = heard.accept()
    say("accepted", name == client.getsockname(), server.getpeername() == name)
    say("both ends", server.getsockname() == client.getpeername() == heard.getsockname())
    for s in (heard, client, server):
        say("what it is", s.family, s.type, s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL))
        say("listens", s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        again = socket.socket(fileno=os.dup(s.fileno()))
        say("by its number", again.family, again.type, again.proto, again.getsockname() == s.getsockname())
    for s in (client, server):
        say("connect again", outcome(s.connect, heard.getsockname()))
        say("bind again", outcome(s.bind, (HERE, 0)))
        say("accept", outcome(s.accept))
    say("bound twice", outcome(heard.bind, (HERE, 0)))
    taken = socket.socket()
    say("taken", outcome(taken.bind, heard.getsockname()))
    say("elsewhere", outcome(taken.bind, ("192.0.2.1", 0)))
    say("then", outcome(taken.bind, (HERE, 0)), taken.getsockname()[0] == HERE)
    say("unconnected peer", outcome(taken.getpeername))


def unconnected():
    for kind in ("new", "bound"):
        s = socket.socket()
        if kind == "bound":
            s.bind((HERE, 0))
        say(kind, "recv", outcome(s.recv, 1), "send", outcome(s.send, b"x"), "shutdown", outcome(s.shutdown, 1))
        say(kind, "accept", outcome(s.accept), "error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    heard = listener()
    say("listener", "recv", outcome(heard.recv, 1), "send", outcome(heard.send, b"x"))
    say("listener", "connect", outcome(heard.connect, (HERE, 1)))
    heard.setblocking(False)
    say("nobody", outcome(heard.accept), ready(heard, select.POLLIN, 0))
    heard.settimeout(0.01)
    say("nobody in time", outcome(heard.accept))
    say("shut", outcome(heard.shutdown, socket.SHUT_RD))
    heard.settimeout(None)
    say("shut accept", outcome(heard.accept))


def refused():
    bound = socket.socket()
    bound.bind((HERE, 0))
    nobody = bound.getsockname()
    heard = socket.socket()
    heard.bind((HERE, 0))
    s = socket.socket()
    say("refused", outcome(s.connect, heard.getsockname()))
    heard.listen()
    say("again", outcome(s.connect, heard.getsockname()))
    other, _ = heard.accept()
    s.sendall(b"after all")
    say("after all", other.recv(100))
    heard.close()
    for ask in ("SO_ERROR", "recv", "connect"):
        s = socket.socket()
        s.setblocking(False)
        say("begun", outcome(s.connect, nobody))
        until(s, select.POLLOUT)
        say(ask, "ready", ready(s))
        if ask == "SO_ERROR":
            say(ask, errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
            say(ask, "then", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), outcome(s.recv, 1), outcome(s.send, b"x"))
        elif ask == "recv":
            say(ask, outcome(s.recv, 1), outcome(s.recv, 1), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        else:
            say(ask, outcome(s.connect, nobody))
    say("unreachable", outcome(socket.socket().connect, ("192.0.2.1", 9)))


def begun():
    heard = listener()
    s = socket.socket()
    s.setblocking(False)
    say("begun", outcome(s.connect, heard.getsockname()))
    until(s, select.POLLOUT)
    say("ready", ready(s), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    say("again", outcome(s.connect, heard.getsockname()), outcome(s.connect, heard.getsockname()))
    server, _ = heard.accept()
    say("nothing yet", outcome(s.recv, 1))
    server.sendall(b"octets")
    until(s, select.POLLIN)
    say("came", ready(s), s.recv(3), s.recv(100, socket.MSG_PEEK), s.recv(100))


def epolls():
    """Registered before it is anything: edges and data words stay."""
    heard = listener()
    e = select.epoll()
    s = socket.socket()
    s.setblocking(False)
    e.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET | select.EPOLLRDHUP)
    e.poll(0)
    s.connect_ex(heard.getsockname())
    server, _ = heard.accept()
    got = dict(e.poll(5))
    say("up", list(got) == [s.fileno()], bool(got[s.fileno()] & select.EPOLLOUT))
    server.sendall(b"x")
    events = 0
    while not events & select.EPOLLIN:
        events |= dict(e.poll(5))[s.fileno()]
    say("came", bool(events & select.EPOLLIN))
    server.close()
    while not events & select.EPOLLRDHUP:
        events |= dict(e.poll(5))[s.fileno()]
    say("over", s.recv(10), s.recv(10))
    e.register(heard, select.EPOLLIN)
    one = socket.create_connection(heard.getsockname())
    say("listener", e.poll(5)[0][0] == heard.fileno())
    e.unregister(s)
    say("gone", outcome(e.modify, s, select.EPOLLIN))
    one.close()


def ends():
    client, server = pair()
    client.sendall(b"last")
    client.shutdown(socket.SHUT_WR)
    say("send after it", outcome(client.send, b"x"))
    say("read", server.recv(10), server.recv(10), server.recv(10))
    server.sendall(b"answer")
    server.close()
    say("answer", client.recv(10), client.recv(10))
    client, server = pair()
    server.sendall(b"unread")
    until(client, select.POLLIN)
    client.close()
    until(server, select.POLLHUP)
    say("reset", outcome(server.recv, 10), outcome(server.recv, 10))
    client, server = pair()
    client.sendall(b"x")
    server.recv(1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    until(server, select.POLLHUP)
    say("linger 0", outcome(server.send, b"x"), outcome(server.send, b"x"), outcome(server.recv, 1))
    client, server = pair()
    said = []
    signal.signal(signal.SIGPIPE, lambda *_: said.append("SIGPIPE"))
    client.close()
    until(server, select.POLLRDHUP)
    server.send(b"x")
    until(server, select.POLLHUP)
    say("pipe", outcome(server.send, b"x"), said)
    say("quiet pipe", outcome(server.send, b"x", socket.MSG_NOSIGNAL), said)
    say("write", outcome(os.write, server.fileno(), b"x"), len(said))


def limits():
    client, server = pair()
    limit = struct.pack("ll", 0, 20000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    say("limit", client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == limit, outcome(client.recv, 1))
    fresh = socket.socket()
    fresh.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    fresh.bind((HERE, 0))
    fresh.listen()
    say("accept in time", outcome(fresh.accept))
    client, server = pair()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    say("interrupted", libc.recv(client.fileno(), ctypes.create_string_buffer(1), 1, 0), errno.errorcode[ctypes.get_errno()])
    heard = listener()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    say("interrupted accept", libc.accept(heard.fileno(), None, None), errno.errorcode[ctypes.get_errno()])


def options():
    before = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
        (socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, 50000),
        (socket.IPPROTO_IP, socket.IP_TOS, 16),
        (socket.IPPROTO_IP, socket.IP_TTL, 33),
        (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    ]
    s = socket.socket()
    for level, name, value in before:
        s.setsockopt(level, name, value)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3))
    s.bind((HERE, 0))
    for level, name, value in before:
        say("option", level, name, s.getsockopt(level, name))
    say("linger", struct.unpack("ii", s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)))
    say("congestion", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).strip(b"\0") != b"")
    s.listen()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 78)
    say("later", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
    say("none such", outcome(s.getsockopt, socket.IPPROTO_TCP, 999), outcome(s.setsockopt, socket.SOL_SOCKET, 999, 1))
    say("cut", len(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)))
    s = socket.socket(socket.AF_INET6)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", 0))
    s.listen()
    say("both families", s.getsockname()[0])
    client = socket.create_connection((HERE, s.getsockname()[1]))
    server, name = s.accept()
    say("mapped", name[0].startswith("::ffff:"), server.family, server.getsockname()[0].startswith("::ffff:"))
    say("wrong family", outcome(s.bind, ("::1", 0)))
    client.close()


def messages():
    client, server = pair()
    say("sendto", client.sendto(b"to", ("192.0.2.1", 9)), server.recvfrom(10))
    client.sendmsg([b"a", b"b"], [], 0, ("192.0.2.1", 9))
    say("recvmsg", server.recvmsg(10, 100))
    r, w = os.pipe()
    fds = array.array("i", [r])
    client.sendmsg([b"with"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    say("no descriptors", server.recvmsg(10, 100))
    say("errors", outcome(server.recv, 1, 0x2000), outcome(server.recv, 1, socket.MSG_OOB))
    client.sendall(b"12345")
    until(server, select.POLLIN)
    count = array.array("i", [0])
    fcntl.ioctl(server, termios.FIONREAD, count)
    say("to read", count[0])
    os.writev(client.fileno(), [b"67", b"89"])
    say("all", server.recv(9, socket.MSG_WAITALL))
    say("nothing", outcome(server.recv, 1, socket.MSG_DONTWAIT))


def many():
    heard = listener(64)
    clients = [socket.create_connection(heard.getsockname()) for _ in range(32)]
    servers = [heard.accept()[0] for _ in clients]
    for i, s in enumerate(servers):
        s.sendall(str(i).encode())
        s.close()
    got = sorted(int(c.makefile().read()) for c in clients)
    say("all served", got == list(range(32)))
    client, server = pair()
    octets = os.urandom(1 << 20)
    sender = threading.Thread(target=lambda: (client.sendall(octets), client.shutdown(1)))
    sender.start()
    got = b""
    while part := server.recv(65536):
        got += part
    sender.join()
    say("a million", got == octets)


def processes():
    heard = listener()
    client = socket.create_connection(heard.getsockname())
    if os.fork() == 0:
        server, name = heard.accept()
        say("child", name == client.getsockname(), server.getpeername() == name)
        server.sendall(b"from the child")
        os._exit(0)
    say("parent", client.recv(100), client.recv(100))
    os.wait()
    client = socket.create_connection(heard.getsockname())
    server, _ = heard.accept()
    if os.fork() == 0:
        os.set_inheritable(server.fileno(), True)
        code = "import socket,sys; s=socket.socket(fileno=int(sys.argv[1])); print('heir:', s.family, s.getpeername()[0], flush=True); s.sendall(s.recv(9)[::-1])"
        os.execv(sys.executable, [sys.executable, "-c", code, str(server.fileno())])
    server.close()
    client.sendall(b"octets")
    say("from the heir", client.recv(100), client.recv(100))
    os.wait()
    left, right = socket.socketpair()
    client = socket.create_connection(heard.getsockname())
    server, _ = heard.accept()
    if os.fork() == 0:
        _, fds, _, _ = socket.recv_fds(right, 1, 1)
        s = socket.socket(fileno=fds[0])
        say("passed", s.family, s.getpeername()[0] == HERE)
        s.sendall(b"passed")
        os._exit(0)
    socket.send_fds(left, [b"x"], [server.fileno()])
    server.close()
    say("by whom it was passed to", client.recv(100), client.recv(100))
    os.wait()
    copy = os.dup(heard.fileno())
    number = heard.fileno()
    os.dup2(os.open("/dev/null", os.O_RDONLY), number)
    say("null", outcome(os.read, number, 1))
    again = socket.socket(fileno=copy)
    client = socket.create_connection(again.getsockname())
    say("copy", outcome(lambda: again.accept()[0].getpeername()[0] == HERE))
    os.close(heard.detach())


def addresses():
    """In C's terms: room that is too small, none, and not there."""
    heard = listener()
    client = socket.create_connection(heard.getsockname())
    for fd, call in ((client.fileno(), libc.getsockname), (client.fileno(), libc.getpeername)):
        room, size = ctypes.create_string_buffer(b"\xff" * 32, 32), ctypes.c_int(4)
        say("cut", call(fd, room, ctypes.byref(size)), size.value, room.raw[4:6])
        size.value = -1
        say("negative", call(fd, room, ctypes.byref(size)), errno.errorcode[ctypes.get_errno()])
        size.value = 32
        say("nowhere", call(fd, None, ctypes.byref(size)), errno.errorcode[ctypes.get_errno()])
        say("no size", call(fd, room, None), errno.errorcode[ctypes.get_errno()])
    size = ctypes.c_int(3)
    room = ctypes.create_string_buffer(b"\xff" * 32, 32)
    fd = libc.accept4(heard.fileno(), room, ctypes.byref(size), socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    say("accepted", size.value, room.raw[3:5], os.get_blocking(fd), os.get_inheritable(fd))
    say("flags", libc.accept4(heard.fileno(), None, None, 1), errno.errorcode[ctypes.get_errno()])
    s = socket.socket()
    raw = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(HERE))
    for size in (1, 15, 200):
        say("bind", size, libc.bind(s.fileno(), raw.ljust(256), size), errno.errorcode[ctypes.get_errno()])
    say("bind", libc.bind(s.fileno(), raw, 16), libc.bind(s.fileno(), None, 16), errno.errorcode[ctypes.get_errno()])
    say("connect", libc.connect(s.fileno(), None, 16), errno.errorcode[ctypes.get_errno()])
    say("connect", libc.connect(s.fileno(), raw, 15), errno.errorcode[ctypes.get_errno()])
    unspecified = struct.pack("=H14x", 99)
    say("family", libc.connect(s.fileno(), unspecified, 16), errno.errorcode[ctypes.get_errno()])
    value, size = ctypes.c_int(0), ctypes.c_int(-1)
    say("option", libc.getsockopt(client.fileno(), 6, 1, ctypes.byref(value), ctypes.byref(size)), errno.errorcode[ctypes.get_errno()])
    size.value = 4
    say("option", libc.getsockopt(client.fileno(), 6, 1, None, ctypes.byref(size)), errno.errorcode[ctypes.get_errno()])
    size.value = 1
    say("option", libc.getsockopt(client.fileno(), 6, 1, ctypes.byref(value), ctypes.byref(size)), size.value)


def full():
    """A table of descriptors without a place: accept says so at once, and loses nothing."""
    heard = listener()
    signal.signal(signal.SIGALRM, lambda *_: None)
    client = None
    for waiting in (False, True):
        if waiting:
            client = socket.create_connection(heard.getsockname())
            say("waits", ready(heard, select.POLLIN))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError as e:
            say("full", errno.errorcode[e.errno])
        # A call that waits is ended.
        signal.setitimer(signal.ITIMER_REAL, 5)
        say("accept", outcome(heard.accept))
        say("accept", outcome(heard.accept))
        signal.setitimer(signal.ITIMER_REAL, 0)
        heard.setblocking(False)
        say("at once", outcome(heard.accept))
        heard.setblocking(True)
        for fd in taken:
            os.close(fd)
    server, name = heard.accept()
    say("accepted", name == client.getsockname())
    client.sendall(b"octets")
    say("octets", server.recv(9))


for part in (names, unconnected, refused, begun, epolls, ends, limits, options, messages, many, processes, full, addresses):
    say("--", part.__name__)
    try:
        part()
    except Exception as e:
        say("failed", type(e).__name__, e)
