"""A program that goes on when its network was taken away: survivor.py client|server HOST PORT

Lines: "up" when octets have come back, or the first client's have come; "lost NAME" when a connection, or what listens, is over, with the
name of the error, or END; "left NAME" when a connection is that the server has accepted.
"""

import errno
import os
import socket
import sys
import threading
import time


def say(*words):
    # As one piece: threads say theirs at the same time.
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def again(call):
    """Until the network is there: who is refused asks again."""
    while True:
        try:
            return call()
        except OSError as e:
            if e.errno not in (errno.ECONNREFUSED, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ECONNRESET, errno.ETIMEDOUT):
                raise
            time.sleep(0.02)


def client(at):
    while True:
        s = again(lambda: socket.create_connection(at, timeout=30))
        up = False
        try:
            while True:
                s.sendall(b"question")
                if not s.recv(100):
                    say("lost END")
                    break
                if not up:
                    up = True
                    say("up")
        except OSError as e:
            say("lost", errno.errorcode.get(e.errno, e))
        s.close()


def echo(s):
    try:
        while octets := s.recv(100):
            s.sendall(octets)
        say("left END")
    except OSError as e:
        say("left", errno.errorcode.get(e.errno, e))
    s.close()


def server(at):
    while True:
        heard = again(lambda: socket.create_server(at))
        up = False
        try:
            while True:
                s, _ = heard.accept()
                threading.Thread(target=echo, args=(s,), daemon=True).start()
                if not up:
                    up = True
                    say("up")
        except OSError as e:
            say("lost", errno.errorcode.get(e.errno, e))
        heard.close()


{"client": client, "server": server}[sys.argv[1]]((sys.argv[2], int(sys.argv[3])))
