"""sibling.py PORT SEED ENDS: a process exchanges octets with an echo server while a child of its writes nonsense into what
the two share about their sockets: the records that begin at octet ENDS. What becomes of its connections does not matter."""
import ctypes
import fcntl
import os
import random
import re
import select
import signal
import socket
import sys
import termios
import time

RECORDS, RECORD = 8, 512
WORDS = [0, 1, 2, 3, 5, 4095, 4096, 1 << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def shared():
    """Where the region is mapped."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "bypath-view" in line:
                return int(re.match("[0-9a-f]+", line)[0], 16)
    sys.exit("nothing is shared")


def nonsense(at, dice):
    """Single words, and whole records of one value now and then, until it is killed, or nobody is left."""
    parent = os.getppid()
    while os.getppid() == parent:
        record = at + RECORD * dice.randrange(RECORDS)
        word = dice.choice([*WORDS, dice.getrandbits(32)])
        kind = dice.random()
        if kind < 0.02:
            ctypes.memset(record, word & 0xFF, RECORD)
        elif kind < 0.3:
            long = dice.choice([0, (1 << 64) - 1, 1 << 63, (1 << 64) - (1 << 20)])
            ctypes.memmove(record + 8 * dice.randrange(RECORD // 8), long.to_bytes(8, "little"), 8)
        else:
            offset = 4 * dice.randrange(RECORD // 4)
            ctypes.memmove(record + offset, word.to_bytes(4, "little"), 4)
        time.sleep(dice.choice([0, 0.0002]))


def line(port):
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(0.3)
    return s


def exchange(s, dice):
    s.sendall(b"S" * dice.choice([1, 100, 5000, 60000]))
    fcntl.ioctl(s, termios.FIONREAD, bytes(4))
    s.recv(200000)
    select.select([s], [], [], 0)


def main():
    port, seed, ends = map(int, sys.argv[1:])
    dice = random.Random(seed)
    lines = [line(port) for _ in range(2)]
    for _ in range(40):
        for s in lines:
            s.sendall(b"ping")
            s.recv(100)
    at = shared() + ends
    child = os.fork()
    if child == 0:
        nonsense(at, dice)
        os._exit(0)
    lost = 0
    until = time.monotonic() + 1
    while time.monotonic() < until:
        for i, s in enumerate(lines):
            try:
                exchange(s, dice)
            except OSError:
                lost += 1
                s.close()
                lines[i] = line(port)
    for s in lines:
        s.close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("lost", lost, flush=True)


main()
