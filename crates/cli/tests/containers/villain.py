"""One who is in a connection's network namespace, of the same user, and is not its end.

villain.py DEED FOLDER CLIENT PORT SERVER PORT: does it until it is ended; prints the reason each time that it is declined. A deed behind `answers and` is
done to who calls, and `called` is printed each time."""
import ctypes
import os
import socket
import struct
import sys
import time

DEED, FOLDER, CLIENT, CLIENT_PORT, SERVER, SERVER_PORT = sys.argv[1:]
ANSWERS = DEED.startswith("answers and ")
DEED = DEED.removeprefix("answers and ")
WORD = "14Q"
HELLO, WELCOME, NO = 0x6F6C6C6548, 0x656D6F636C6557, 0x6F4E
SO_COOKIE, SO_NETNS_COOKIE = 57, 71


def end(address, port):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(address) + struct.pack(">H", int(port))


def name(own, other):
    number = 0xCBF29CE484222325
    for octet in own + other:
        number = (number ^ octet) * 0x100000001B3 & (1 << 64) - 1
    return f"bypath-1-{number:016x}"


def cookie_of_client():
    """The client's socket, by sock_diag."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4) as diag:
        ends = struct.pack(">HH", int(CLIENT_PORT), int(SERVER_PORT))
        ends += socket.inet_aton(CLIENT) + bytes(12) + socket.inet_aton(SERVER) + bytes(12)
        body = struct.pack("BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends + bytes(4) + b"\xff" * 8
        diag.send(struct.pack("IHHII", 16 + len(body), 20, 1, 1, 0) + body)
        answer = diag.recv(4096)
        if struct.unpack_from("H", answer, 4)[0] != 20:
            return None
        return struct.unpack_from("Q", answer, 16 + 4 + 40)[0]


def option(s, number):
    return struct.unpack("Q", s.getsockopt(socket.SOL_SOCKET, number, 8))[0]


def shown():
    """Two sockets that are shown, and the namespace that is said."""
    if DEED == "shows the wrong namespace":
        assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0, "no namespace"
    protocol = 0 if DEED == "shows another protocol" else 4
    diag = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, protocol)
    if DEED == "shows another domain":
        # Of the number that sock_diag has as a protocol: IPv4 in IPv4.
        diag = socket.socket(socket.AF_INET, socket.SOCK_RAW, 4)
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if DEED == "shows another probe":
        probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    namespace = option(diag, SO_NETNS_COOKIE) + (DEED == "says another namespace")
    if DEED == "shows pipes":
        return os.pipe(), namespace
    keep.extend([diag, probe])
    return (diag.fileno(), probe.fileno()), namespace


def proof():
    """The client's cookie, and what is shown with it; None: there is no client yet."""
    # Once: another namespace does not see it.
    known["cookie"] = known.get("cookie") or cookie_of_client()
    if known["cookie"] is None:
        return None
    known["shown"] = known.get("shown") or shown()
    return known["cookie"] + (DEED == "shows another cookie"), *known["shown"]


def say(caller, words, fds):
    """Who is called takes descriptors once he has seen who calls."""
    end = time.monotonic() + 5
    while True:
        try:
            return socket.send_fds(caller, [words], fds)
        except PermissionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.001)


def call(theirs):
    shows = proof()
    if shows is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        try:
            caller.connect(theirs)
        except OSError:
            return False
        cookie, (diag, probe), namespace = shows
        words = [HELLO, 1, cookie, 0, 7, 1, 2, 3, 1, 65536, 0, 0, namespace, 0]
        inbox = os.memfd_create("inbox")
        try:
            say(caller, struct.pack(WORD, *words), [inbox, diag, probe])
            caller.settimeout(5)
            answer, fds, _, _ = socket.recv_fds(caller, 8 * 14, 4)
        except OSError:
            return False
        finally:
            os.close(inbox)
        for fd in fds:
            os.close(fd)
        words = struct.unpack(WORD, answer) if len(answer) == 8 * 14 else [0] * 14
        if words[0] == NO:
            print(words[2], flush=True)
        elif answer:
            print("welcome", flush=True)
        return True


def welcome(caller):
    """Founds a pair, with memory that is none, and shows that this is the client's."""
    cookie, (diag, probe), namespace = proof()
    words = [WELCOME, 1, 8, 7, 0, 1, 2, 3, 1, 1 << 32 | 16384, 1, 0, namespace, cookie]
    memory = os.memfd_create("memory")
    socket.send_fds(caller, [struct.pack(WORD, *words)], [memory, memory, diag, probe])
    os.close(memory)


def answer(ours):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(ours)
        listener.listen(8)
        print("ready", flush=True)
        callers = []
        while True:
            caller, _ = listener.accept()
            callers.append(caller)
            words, fds, _, _ = socket.recv_fds(caller, 8 * 14, 4)
            for fd in fds:
                os.close(fd)
            print("called", flush=True)
            if DEED == "says nonsense":
                caller.send(os.urandom(8 * 14))
            elif ANSWERS:
                welcome(caller)


# Paths of sockets are short.
os.chdir(FOLDER)
keep, known = [], {}
client, server = end(CLIENT, CLIENT_PORT), end(SERVER, SERVER_PORT)
if DEED == "links":
    # To a socket of somebody who would be called then.
    elsewhere = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    elsewhere.bind("elsewhere")
    elsewhere.listen(8)
    os.symlink("elsewhere", name(client, server))
    print("ready", flush=True)
    elsewhere.accept()
    print("called", flush=True)
elif ANSWERS or DEED in ("is silent", "says nonsense"):
    answer(name(client, server))
else:
    print("ready", flush=True)
    while True:
        if not call(name(server, client)):
            time.sleep(0.0005)
