"""edges.py server | client PORT: one read for each edge, as nginx does it: a short read means that all was read.

The server never reads until EAGAIN, so every message that comes after a read must be an edge of its own.
"""

import select
import socket
import sys
import threading

CONNECTIONS = 4
ROUND_TRIPS = 20_000


def serve():
    epoll = select.epoll()
    listener = socket.create_server(("127.0.0.1", 0))
    epoll.register(listener, select.EPOLLIN)
    edges = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
    open_sockets = {}
    print("port", listener.getsockname()[1], flush=True)
    while True:
        for fd, mask in epoll.poll():
            if fd == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                open_sockets[accepted.fileno()] = accepted
                epoll.register(accepted, edges)
            elif mask & ~select.EPOLLOUT:
                try:
                    data = open_sockets[fd].recv(4096)
                except BlockingIOError:
                    # An edge may tell of bytes that were read with an earlier one.
                    continue
                if data:
                    open_sockets[fd].send(data)
                else:
                    open_sockets.pop(fd).close()


def ask(port, failures):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for n in range(ROUND_TRIPS):
            message = n.to_bytes(64, "little")
            connection.sendall(message)
            answer = b""
            while len(answer) < len(message):
                part = connection.recv(4096)
                if not part:
                    failures.append(f"round trip {n}: the connection ended")
                    return
                answer += part
            if answer != message:
                failures.append(f"round trip {n}: another answer")
                return


def client(port):
    failures = []
    threading.excepthook = lambda args: failures.append(f"{args.exc_type.__name__}: {args.exc_value}")
    threads = [threading.Thread(target=ask, args=(port, failures)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit("\n".join(failures))
    print("payload", 2 * CONNECTIONS * ROUND_TRIPS * 64)


if sys.argv[1] == "server":
    serve()
else:
    client(int(sys.argv[2]))
