"""A netstack service of the tests' own: the protocol of docs/netstack-service.md over kernel sockets.

service.py --run PROGRAM...: runs that there, on the kernel's own sockets. service.py FOLDER NAME: answers at FOLDER/NAME with TCP sockets of the network namespace that it is started in, whose loopback
gets the addresses 10.9.0.1 and fd09::1. It proves the programs' half alone: links, limits and rights are not its business.
"""

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import threading
import time

HEADER = struct.Struct("=IIQiI")
HELLO, OPEN, BIND, LISTEN, CONNECT, NAMES, SET, GET, ERROR, SHUTDOWN, QUERY, RINGS = range(1, 13)
SO_COOKIE = 57

FOLDER, NAME = sys.argv[1:3]
libc = ctypes.CDLL(None)
sockets = {}


def interface_up():
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flags = struct.pack("=16sh", b"lo", 1 | 64)
    fcntl.ioctl(probe, 0x8914, flags.ljust(40, b"\0"))
    address = struct.pack("=16sH2s4s", b"lo:1", socket.AF_INET, b"\0\0", socket.inet_aton("10.9.0.1"))
    fcntl.ioctl(probe, 0x8916, address.ljust(40, b"\0"))
    probe.close()
    if socket.has_ipv6:
        probe = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        fcntl.ioctl(probe, 0x8916, socket.inet_pton(socket.AF_INET6, "fd09::1") + struct.pack("=Ii", 64, 1))
        probe.close()


def encode(name):
    if name is None:
        return bytes(32)
    if len(name) == 2:
        return struct.pack("=HHIII4s12x", socket.AF_INET, name[1], 0, 0, 0, socket.inet_aton(name[0]))
    raw = socket.inet_pton(socket.AF_INET6, name[0].split("%")[0])
    return struct.pack("=HHIII16s", socket.AF_INET6, name[1], name[3], name[2], 0, raw)


def decode(raw):
    family, port, scope, flow, _, octets = struct.unpack("=HHIII16s", raw[:32])
    if family == socket.AF_INET:
        return (socket.inet_ntoa(octets[:4]), port)
    return (socket.inet_ntop(socket.AF_INET6, octets), port, flow, scope)


def name_of(ask):
    """What it answers, or nothing."""
    try:
        return ask()
    except OSError:
        return None


class Socket:
    def __init__(self, kernel):
        self.kernel, self.error, self.over = kernel, 0, threading.Semaphore(0)
        self.remote = name_of(kernel.getpeername)
        self.end, self.program = socket.socketpair()
        self.cookie = struct.unpack("=Q", self.program.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8))[0]
        self.end.bind(b"\0bypath/netstack/%s/%016x/%s" % (NAME.encode(), self.cookie, os.urandom(8).hex().encode()))
        sockets[self.cookie] = self

    def fail(self, e):
        self.error = self.error or e.errno

    def listen(self, backlog):
        self.kernel.listen(backlog)
        threading.Thread(target=self.accept, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        # The program sends nothing: this ends when its last descriptor does.
        name_of(lambda: self.end.recv(1))
        name_of(lambda: self.kernel.shutdown(socket.SHUT_RDWR))
        self.kernel.close()

    def accept(self):
        try:
            while True:
                kernel, _ = self.kernel.accept()
                new = Socket(kernel)
                record = b"BYPACPT1" + struct.pack("=Q", new.cookie)
                record += encode(kernel.getsockname()) + encode(name_of(kernel.getpeername))
                program, new.program = new.program, None
                new.pump()
                socket.send_fds(self.end, [record], [program.fileno()])
                program.close()
        except OSError:
            self.end.close()

    def connect(self, to, program):
        self.kernel.setblocking(False)
        result = self.kernel.connect_ex(to)
        if result not in (0, errno.EINPROGRESS):
            self.kernel.setblocking(True)
            raise OSError(result, "connect")
        size = program.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        program.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        blocking = os.get_blocking(program.fileno())
        filled = 0
        try:
            while True:
                filled += program.send(b"x", socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        assert blocking == os.get_blocking(program.fileno())
        threading.Thread(target=self.connected, args=(program, size, filled), daemon=True).start()

    def connected(self, program, size, filled):
        self.kernel.setblocking(True)
        while self.kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == 2:
            time.sleep(0.002)
        self.error = self.kernel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self.error:
            program.close()
            self.end.close()
            return
        self.remote = name_of(self.kernel.getpeername)
        program.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size // 2)
        while filled:
            filled -= len(self.end.recv(filled))
        program.close()
        self.pump()

    def pump(self):
        for body in (self.outwards, self.inwards, self.last):
            threading.Thread(target=body, daemon=True).start()

    def outwards(self):
        try:
            while octets := self.end.recv(65536):
                self.kernel.sendall(octets)
            hung_up = select.poll()
            hung_up.register(self.end, 0)
            linger = self.kernel.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
            if hung_up.poll(0) and linger == struct.pack("ii", 1, 0):
                self.abort()
            self.kernel.shutdown(socket.SHUT_WR)
        except ConnectionResetError:
            self.abort()
        except OSError as e:
            self.fail(e)
        self.over.release()

    def abort(self):
        # connect to AF_UNSPEC resets a connection, whoever waits in it.
        libc.connect(self.kernel.fileno(), bytes(16), 16)

    def inwards(self):
        try:
            while octets := self.kernel.recv(65536):
                self.end.sendall(octets)
        except BrokenPipeError:
            # The program is gone, and octets came.
            self.abort()
        except OSError as e:
            self.fail(e)
            # A reset: nobody writes any more.
            name_of(lambda: self.end.shutdown(socket.SHUT_RD))
        name_of(lambda: self.end.shutdown(socket.SHUT_WR))
        # Both ways are over, or it was reset after all.
        over = select.poll()
        over.register(self.kernel, 0)
        over.poll()
        self.error = self.error or self.kernel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        name_of(lambda: self.end.shutdown(socket.SHUT_RD))
        self.over.release()

    def last(self):
        self.over.acquire()
        self.over.acquire()
        self.end.close()


def option(raw):
    return struct.unpack("=ii", raw[:8])


def answer(op, cookie, body, fds):
    """errno, cookie, body, descriptor."""
    if op == HELLO:
        return 0, 0, struct.pack("=II", 1, os.getpid()) + NAME.encode(), None
    if op == QUERY:
        # What is behind the last message of an answer is one without a body.
        return 0, 0, b"", None
    if op == OPEN:
        domain, kind, protocol = struct.unpack("=iii", body[:12])
        new = Socket(socket.socket(domain, kind, protocol))
        program, new.program = new.program, None
        return 0, new.cookie, b"", program
    if op == RINGS:
        # The pair it is.
        return errno.EPERM, cookie, b"", None
    s = sockets.get(cookie)
    if s is None:
        return errno.EBADF, cookie, b"", None
    if op == BIND:
        s.kernel.bind(decode(body))
        return 0, cookie, encode(s.kernel.getsockname()), None
    if op == LISTEN:
        s.listen(struct.unpack("=i", body[:4])[0])
    elif op == CONNECT:
        if not body[0] and not body[1]:
            s.abort()
            s.end.shutdown(socket.SHUT_RDWR)
            return 0, cookie, b"", None
        s.connect(decode(body), socket.socket(fileno=fds.pop()))
        return errno.EINPROGRESS, cookie, b"", None
    elif op == NAMES:
        names = encode(name_of(s.kernel.getsockname)) + encode(s.remote)
        try:
            state = s.kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0]
        except OSError:
            state = 7
        return 0, cookie, names + struct.pack("=I", state), None
    elif op == SET:
        s.kernel.setsockopt(*option(body), body[8:])
    elif op == GET:
        value = s.kernel.getsockopt(*option(body), max(1, struct.unpack("=i", body[8:12])[0]))
        return 0, cookie, value, None
    elif op == ERROR:
        error, s.error = s.error, 0
        return 0, cookie, struct.pack("=i", error), None
    elif op == SHUTDOWN:
        s.kernel.shutdown(struct.unpack("=i", body[:4])[0])
    return 0, cookie, b"", None


def serve(peer):
    while True:
        try:
            message, fds, _, _ = socket.recv_fds(peer, 4096, 4)
        except OSError:
            return
        if not message:
            return
        op, serial, cookie, _, _ = HEADER.unpack(message[: HEADER.size])
        try:
            error, cookie, body, program = answer(op, cookie, message[HEADER.size :], fds)
        except OSError as e:
            error, body, program = e.errno, b"", None
        for fd in fds:
            os.close(fd)
        reply = HEADER.pack(op, serial, cookie, error, 0) + body
        if program is None:
            peer.send(reply)
        else:
            socket.send_fds(peer, [reply], [program.fileno()])
            program.close()


def main():
    interface_up()
    if FOLDER == "--run":
        os.execvp(NAME, sys.argv[2:])
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{FOLDER}/{NAME}")
    listener.listen(64)
    print("ready", flush=True)
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=serve, args=(peer,), daemon=True).start()


main()
