"""late.py server | late.py client PORT: connections that are put into an epoll set while another thread sleeps in it,
the first before anything in the set was accelerated, and with events that come once (EPOLLONESHOT). A sleeper that is
not woken by what comes then is the failure. Prints the port, or the payload moved."""
import select
import socket
import sys
import threading

CONNECTIONS, MESSAGES, SIZE, SECONDS = 3, 200, 16384, 30


def receive(s):
    part = b""
    while len(part) < SIZE:
        more = s.recv(SIZE - len(part))
        assert more, "end of file in a message"
        part += more
    return part


class Sleeper(threading.Thread):
    """Waits on the set for one thing after the other."""

    def __init__(self, epoll):
        super().__init__(daemon=True)
        self.epoll, self.events, self.came = epoll, [], threading.Semaphore(0)

    def run(self):
        while True:
            for event in self.epoll.poll(600):
                self.events.append(event)
                self.came.release()


def server():
    listener = socket.create_server(("127.0.0.1", 0))
    # Something is in the set, and never ready.
    idle = socket.socketpair()
    epoll = select.epoll()
    epoll.register(idle[0], select.EPOLLIN)
    sleeper = Sleeper(epoll)
    sleeper.start()
    print("port", listener.getsockname()[1], flush=True)
    for number in range(CONNECTIONS):
        connection, _ = listener.accept()
        for _ in range(MESSAGES):
            connection.sendall(receive(connection))
        flags = select.EPOLLIN | (select.EPOLLONESHOT if number % 2 else 0)
        epoll.register(connection, flags)
        # The client sends its last message after this one.
        connection.sendall(bytes(SIZE))
        if not sleeper.came.acquire(timeout=SECONDS):
            sys.exit(f"connection {number}: the sleeper was not woken")
        if (event := sleeper.events[-1]) != (connection.fileno(), select.EPOLLIN):
            sys.exit(f"connection {number}: the sleeper got {event}")
        epoll.unregister(connection)
        connection.sendall(receive(connection))
        assert not connection.recv(1), "bytes after the last message"
        connection.close()
        while sleeper.came.acquire(blocking=False):
            assert sleeper.events[-1][1] & select.EPOLLIN
    print("served", CONNECTIONS, flush=True)


def client(port):
    payload = 0
    for _ in range(CONNECTIONS):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            for number in range(MESSAGES):
                message = number.to_bytes(4, "big") * (SIZE // 4)
                connection.sendall(message)
                assert receive(connection) == message, "other bytes came back"
            assert receive(connection) == bytes(SIZE)
            last = b"last" * (SIZE // 4)
            connection.sendall(last)
            assert receive(connection) == last, "other bytes came back"
            payload += 2 * SIZE * (MESSAGES + 1)
    print("payload", payload)


if __name__ == "__main__":
    server() if sys.argv[1] == "server" else client(int(sys.argv[2]))
