"""Datagrams without an end: letters.py server HOST PORT sends each one back, letters.py load HOST PORT has some on their way at any time.

Lines: "listening"; "flows" when a thousand have come back. A load goes on where nobody answers, or somebody says that nobody is there.
"""

import socket
import sys
import time

AT_ONCE = 16
# A datagram that was lost is not waited for longer than this (s).
LOST = 0.05


def say(*words):
    print(*words, flush=True)


def server(at):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(at)
    say("listening")
    while True:
        octets, sender = s.recvfrom(2000)
        s.sendto(octets, sender)


def load(at):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(at)
    s.settimeout(LOST)
    back, on_way = 0, 0
    while True:
        try:
            while on_way < AT_ONCE:
                s.send(b"letter" * 50)
                on_way += 1
            s.recv(2000)
            on_way -= 1
            back += 1
            if back == 1000:
                say("flows")
        except TimeoutError:
            on_way = 0
        except ConnectionRefusedError:
            on_way = 0
            time.sleep(LOST)


{"server": server, "load": load}[sys.argv[1]]((sys.argv[2], int(sys.argv[3])))
