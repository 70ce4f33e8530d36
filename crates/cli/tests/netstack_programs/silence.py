"""Connections that nobody answers.

full HOST PORT    listens, and has no room: requests are lost
closes HOST PORT  asks for connections there, gives them up, and stays
waits HOST PORT   asks for connections there, and waits
inherits HOST PORT FILE   the same, and leaves one to a program that knows nothing of it and ends when there is no such file
"""

import os
import signal
import socket
import sys
import threading

what, to = sys.argv[1], (sys.argv[2], int(sys.argv[3]))


def begun():
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(to) == 115, "EINPROGRESS"
    return s


def says(word):
    print(word, flush=True)
    while True:
        signal.pause()


if what == "full":
    listener = socket.socket()
    listener.bind(to)
    listener.listen(0)
    first = socket.create_connection(to)
    says("full")
elif what == "closes":
    begun().close()
    one = begun()
    two = one.dup()
    one.close()
    two.close()
    limited = socket.socket()
    limited.settimeout(0.2)
    try:
        limited.connect(to)
    except TimeoutError:
        limited.close()
    # Another one with its number.
    three = begun()
    os.dup2(0, three.detach())
    says("closed")
else:
    waiting = [begun() for _ in range(3)]
    if what == "inherits":
        os.set_inheritable(waiting[0].fileno(), True)
        if os.fork() == 0:
            os.execv("/bin/sh", ["sh", "-c", f"exec >/dev/null 2>&1; while [ -e {sys.argv[4]} ]; do sleep 0.05; done"])
    threading.Thread(target=lambda: socket.create_connection(to), daemon=True).start()
    says("waits")
