"""A program that means harm with the memory that it shares with a service: villain.py HOST PORT, an echo server's.

It asks for rings as docs/netstack-service.md says, and then for each line of its input does one thing and tells what came of it:
`bell`: the service has to ring an eventfd that is full and waits; `pipe`: one that is a full pipe; `holes`: it gives the memory back
to the kernel for ever, while the service uses it."""

import array
import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import sys
import threading

HEADER = struct.Struct("=IIQiI")
OPEN, CONNECT, RINGS = 2, 5, 12
INBOX, PAGE, RING = 45056, 4096, 16384
BELL, WORDS = 0x6C6C6542, 14
# Of direction 1, what the service writes, in a slot's first page.
TAIL, HEAD, WAITS, ASK = 640, 640 + 128, 640 + 256, 640 + 256 + 32
libc = ctypes.CDLL(None, use_errno=True)
questions = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
questions.connect(os.environ["BYPATH_NETSTACK_DIR"] + "/lab")


def ask(op, cookie, body, *fds):
    questions.sendmsg([HEADER.pack(op, 1, cookie, 0, 0) + body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    message, fds, _, _ = socket.recv_fds(questions, 4096, 8)
    _, _, cookie, failed, _ = HEADER.unpack(message[: HEADER.size])
    return failed, cookie, message[HEADER.size :], fds


class Connection:
    def __init__(self):
        failed, self.cookie, _, (end,) = ask(OPEN, 0, struct.pack("=iii", socket.AF_INET, socket.SOCK_STREAM, 0))
        assert failed == 0, failed
        self.pair = socket.socket(fileno=end)
        to = struct.pack("=HHIII4s12x", socket.AF_INET, int(sys.argv[2]), 0, 0, 0, socket.inet_aton(sys.argv[1]))
        assert ask(CONNECT, self.cookie, to, end)[0] == errno.EINPROGRESS
        select.select([], [end], [], 10)
        self.inbox = os.memfd_create("inbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.inbox, INBOX)
        fcntl.fcntl(self.inbox, 1033, 7)

    def meet(self, token):
        """Rings; the errno where there are none."""
        failed, _, body, fds = ask(RINGS, self.cookie, struct.pack("=QQII", token, 0, 3, RING), self.inbox)
        if failed:
            return failed
        _, _, _, slot, slots, ring, first = struct.unpack("=QQIIIII", body[:36])
        assert (first, len(fds)) == (1, 4)
        self.memory = mmap.mmap(fds[0], PAGE + slots * (PAGE + 2 * ring))
        self.slot = PAGE + slot * (PAGE + 2 * ring)
        self.control = socket.socket(fileno=fds[3])
        return 0

    def word(self, at, form="=Q"):
        return struct.unpack_from(form, self.memory, self.slot + at)[0]

    def put(self, at, value, form="=Q"):
        struct.pack_into(form, self.memory, self.slot + at, value)

    def sleep_behind(self, bell, number):
        """The service knows this bell, and is to ring it when it has something for the ring."""
        message = struct.pack("=%dQ" % WORDS, BELL, 1, number, *([0] * (WORDS - 3)))
        socket.send_fds(self.control, [message], [bell])
        self.put(WAITS, number << 32 | 1)
        self.put(ASK, 1, "=I")

    def echo(self):
        """One octet to the server, whose answer the service puts into the ring. False: not within ten seconds."""
        before = self.word(TAIL)
        self.pair.send(b"x")
        for _ in range(10_000):
            if self.word(TAIL) > before:
                return True
            select.select([], [], [], 0.001)
        return False


kept = []


def token():
    return int.from_bytes(os.urandom(8), "little")


def rung(bell):
    connection = Connection()
    kept.append(connection)
    failed = connection.meet(token())
    if failed:
        return errno.errorcode[failed]
    connection.sleep_behind(bell, 5)
    return "rung" if connection.echo() else "nothing came"


def full_bell():
    bell = os.eventfd(0, 0)
    os.write(bell, struct.pack("=Q", 2**64 - 2))
    return bell


def full_pipe():
    out, into = os.pipe()
    os.set_blocking(into, False)
    try:
        while True:
            os.write(into, bytes(4096))
    except BlockingIOError:
        pass
    os.set_blocking(into, True)
    kept.append(out)
    return into


def holes():
    connection = Connection()
    failed = connection.meet(token())
    if failed:
        return errno.errorcode[failed]
    address = ctypes.addressof(ctypes.c_char.from_buffer(connection.memory))
    over = threading.Event()

    def punch():
        while not over.is_set():
            for _ in range(100):
                libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(len(connection.memory)), 9)

    # ctypes gives the interpreter away during a call.
    threads = [threading.Thread(target=punch) for _ in range(3)]
    [thread.start() for thread in threads]
    ended = False
    try:
        connection.pair.settimeout(0.01)
        for _ in range(200_000):
            try:
                connection.pair.send(b"x")
                if connection.pair.recv(4096) == b"":
                    ended = True
                    break
            except TimeoutError:
                pass
    except OSError:
        ended = True
    over.set()
    [thread.join() for thread in threads]
    again = Connection().meet(token())
    return "%s, then %s" % ("reset" if ended else "nothing happened", errno.errorcode.get(again, again))


deeds = {"bell": lambda: rung(full_bell()), "pipe": lambda: rung(full_pipe()), "holes": holes}
print("ready", flush=True)
for line in sys.stdin:
    print(deeds[line.strip()](), flush=True)
