"""ping.py PORT [ROUNDS]: messages in step with an echo server, each checked; prints the payload moved."""
import random
import socket
import sys


def ping(connection, rounds):
    rng = random.Random(1)
    for _ in range(rounds):
        message = rng.randbytes(1024)
        connection.sendall(message)
        back = b""
        while len(back) < len(message):
            data = connection.recv(len(message) - len(back))
            assert data, "end of file in a message"
            back += data
        assert back == message, "other bytes came back"
    return 2 * 1024 * rounds


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60)


if __name__ == "__main__":
    with connect(int(sys.argv[1])) as connection:
        print("payload", ping(connection, int((sys.argv[2:] or [3000])[0])))
