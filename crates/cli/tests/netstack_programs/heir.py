"""A server that gets its listening socket by exec and waits for calls before it does anything else with it: heir.py HOW HOST PORT

HOW is poll or select. Each caller is answered as by HTTP. At SIGTERM: "woken N", of waits that ended without a call.
"""

import os
import select
import signal
import socket
import sys

ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\noctets"
woken = 0


def ends(*_):
    print("woken", woken, flush=True)
    os._exit(0)


def begins(how, host, port):
    heard = socket.create_server((host, int(port)))
    heard.setblocking(False)
    heard.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, sys.argv[0], how, str(heard.fileno())])


def waits(how, fd, seconds):
    if how == "select":
        select.select([fd], [], [], seconds)
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(None if seconds is None else 1000 * seconds)


def goes_on(how, fd):
    global woken
    signal.signal(signal.SIGTERM, ends)
    waits(how, fd, 0)
    print("waits", flush=True)
    heard = None
    while True:
        waits(how, fd, None)
        # Nothing is asked of it that tells what it is.
        heard = heard or socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
        try:
            caller, _ = heard.accept()
        except OSError:
            woken += 1
            continue
        caller.setblocking(True)
        caller.recv(1000)
        caller.sendall(ANSWER)
        caller.close()


if len(sys.argv) == 4:
    begins(*sys.argv[1:])
else:
    goes_on(sys.argv[1], int(sys.argv[2]))
