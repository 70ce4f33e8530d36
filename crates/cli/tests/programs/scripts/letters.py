"""letters.py COUNT ROUNDS SIZE [before|after]: COUNT pairs of UDP sockets of this process, each of which passes ROUNDS datagrams of SIZE octets on from
one to the other, which looks before and after each. All stay open. Before or after that the program takes every descriptor that it can get, and says
which. Prints the octets that came."""
import errno
import os
import resource
import socket
import sys


def pair():
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    receiver.bind(("127.0.0.1", 0))
    receiver.setblocking(False)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    return sender, receiver


def look(receiver):
    try:
        return receiver.recv(65536)
    except BlockingIOError:
        return None


def take_all():
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as e:
            assert e.errno == errno.EMFILE, e
            return taken


count, rounds, size = map(int, sys.argv[1:4])
when = sys.argv[4] if len(sys.argv) > 4 else "never"
payload = 0
pairs = [pair() for _ in range(count)]
taken = take_all() if when == "before" else []
for number, (sender, receiver) in enumerate(pairs):
    for turn in range(rounds):
        octets = b"%06d%06d" % (number, turn) + bytes(size - 12)
        assert look(receiver) is None
        sender.send(octets)
        # EAGAIN may be late by microseconds.
        got = look(receiver)
        while got is None:
            got = look(receiver)
        assert got == octets, (number, turn, got[:12])
        payload += size
if when == "after":
    taken = take_all()
if when != "never":
    print("seen", resource.getrlimit(resource.RLIMIT_NOFILE), taken)
print("payload", payload)
