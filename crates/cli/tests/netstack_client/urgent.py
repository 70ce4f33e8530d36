"""Who hears of urgent octets, the same with kernel sockets and with a service's.

urgent.py ADDRESS: of this host, or the service's."""

import fcntl
import os
import select
import signal
import socket
import struct
import sys

HERE = sys.argv[1]
F_SETSIG, F_SETOWN_EX, F_OWNER_PID, SIOCSPGRP = 10, 15, 1, 0x8902
heard = []
for name in ("SIGURG", "SIGUSR1"):
    signal.signal(getattr(signal, name), lambda *_, name=name: heard.append(name))
listener = socket.socket()
listener.bind((HERE, 0))
listener.listen()


def own(s):
    fcntl.fcntl(s, F_SETOWN_EX, struct.pack("ii", F_OWNER_PID, os.getpid()))


def own_by_ioctl(s):
    fcntl.ioctl(s, SIOCSPGRP, struct.pack("i", os.getpid()))


def comes(what, server, client):
    server.send(b"two!", socket.MSG_OOB)
    p = select.poll()
    p.register(client, select.POLLPRI)
    print(what, bool(p.poll(5000)), sorted(set(heard)), client.recv(9), client.recv(1, socket.MSG_OOB), flush=True)
    heard.clear()


def pair(early):
    client = socket.socket()
    if early:
        early(client)
    client.connect(listener.getsockname())
    return client, listener.accept()[0]


client, server = pair(None)
comes("nobody", server, client)
own(client)
comes("said later", server, client)
client, server = pair(own_by_ioctl)
comes("said by ioctl", server, client)
client, server = pair(own)
comes("said before", server, client)
comes("again", server, client)
fcntl.fcntl(client, fcntl.F_SETOWN, 0)
comes("not any more", server, client)
comes("the accepted one has nobody", client, server)
