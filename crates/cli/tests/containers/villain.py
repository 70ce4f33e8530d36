"""One who is in a connection's network namespace, of the same user, and is not its end.

villain.py DEED FOLDER CLIENT PORT SERVER PORT: does it until it is ended; prints the reason each time that it is declined."""
import ctypes
import os
import socket
import struct
import sys
import time

DEED, FOLDER, CLIENT, CLIENT_PORT, SERVER, SERVER_PORT = sys.argv[1:]
WORD = "14Q"
HELLO, NO = 0x6F6C6C6548, 0x6F4E
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
    cookie = cookie_of_client()
    if cookie is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        try:
            caller.connect(theirs)
        except OSError:
            return False
        cookie += DEED == "shows another cookie"
        (diag, probe), namespace = sockets
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


# Paths of sockets are short.
os.chdir(FOLDER)
keep = []
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
elif DEED in ("is silent", "says nonsense"):
    answer(name(client, server))
else:
    own = DEED == "shows the wrong namespace"
    cookie = None
    sockets = None if own else shown()
    print("ready", flush=True)
    if own:
        # As long as it sees the client.
        while (cookie := cookie_of_client()) is None:
            time.sleep(0.001)
        sockets = shown()
        cookie_of_client = lambda: cookie
    while True:
        if not call(name(server, client)):
            time.sleep(0.0005)
