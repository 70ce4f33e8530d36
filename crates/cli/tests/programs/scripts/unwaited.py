"""A server that waits for its listener in one epoll set, or by another call, registers the connection in a second one,
and finds more to read each time it looks: it never waits in the second.

    unwaited.py server WAIT     prints "port N"; WAIT is epoll, poll or select
    unwaited.py client PORT     prints "payload N"
"""

import hashlib
import select
import socket
import sys

TURNS, SIZE = 16000, 16384


def waits(listener, how):
    if how == "select":
        return select.select([listener], [], [], 60)[0]
    # Seconds there, milliseconds here.
    waiter, limit = (select.epoll(), 60) if how == "epoll" else (select.poll(), 60_000)
    waiter.register(listener, select.POLLIN)
    return waiter.poll(limit)


def server(how):
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    assert waits(listener, how), "nobody came"
    connection, _ = listener.accept()
    second = select.epoll()
    second.register(connection, select.EPOLLIN)
    digest = hashlib.md5()
    for _ in range(TURNS):
        digest.update(connection.recv(SIZE, socket.MSG_WAITALL))
    connection.sendall(digest.digest())
    assert connection.recv(1) == b""


def client(port):
    connection = socket.create_connection(("127.0.0.1", port))
    digest = hashlib.md5()
    for turn in range(TURNS):
        piece = turn.to_bytes(4, "big") * (SIZE // 4)
        digest.update(piece)
        connection.sendall(piece)
    assert connection.recv(16, socket.MSG_WAITALL) == digest.digest()
    print("payload", TURNS * SIZE)


server(sys.argv[2]) if sys.argv[1] == "server" else client(int(sys.argv[2]))
