"""A program whose standard error is another file by the time it first needs its service: late.py HOST PORT

It says "waits", and connects at SIGUSR1.
"""

import os
import signal
import socket
import sys


def connects(*_):
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])))
    except OSError as error:
        print(error.strerror, flush=True)


null = os.open("/dev/null", os.O_WRONLY)
os.dup2(null, 2)
signal.signal(signal.SIGUSR1, connects)
print("waits", flush=True)
signal.pause()
