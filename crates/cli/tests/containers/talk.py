"""Talk between containers, message by message, each checked.

talk.py serve ADDRESS PORT [DEED COUNT]: an echo server; prints its port. After COUNT messages of a connection it does DEED: `fork` (a child goes on), `exec` (another image
goes on) or `die` (by a signal that nobody handles).
talk.py ping ADDRESS PORT ROUNDS STREAMS PORT: so many connections in turns, from that local port if it is not 0; prints for each the payload moved, or how many
octets came before the end. `hold` in place of `ping`: after half of the rounds it says so, and waits for a line."""
import os
import random
import signal
import socket
import sys
import threading

SIZE = 1024


def whole(connection):
    message = b""
    while len(message) < SIZE:
        octets = connection.recv(SIZE - len(message))
        if not octets:
            return None
        message += octets
    return message


def echo(connection, deed=None, count=-1):
    while message := whole(connection):
        connection.sendall(message)
        count -= 1
        if count == 0 and deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if count == 0 and deed == "fork" and os.fork():
            return
        if count == 0 and deed == "exec":
            os.set_inheritable(connection.fileno(), True)
            os.execv(sys.executable, [sys.executable, __file__, "resume", str(connection.fileno())])


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(address, port, deed=None, count=0):
    listener = socket.create_server((address, int(port)), family=family(address))
    print("port", listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        if deed in ("fork", "exec"):
            # One connection, in the first thread.
            echo(connection, deed, int(count))
            connection.close()
            continue
        threading.Thread(target=echo, args=(connection, deed, int(count)), daemon=True).start()


def connect(address, port, local):
    connection = socket.socket(family(address))
    connection.settimeout(30)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.bind(("", int(local)))
    connection.connect((address, int(port)))
    return connection


def hold(*words):
    ping(*words, waits=True)


def ping(address, port, rounds, streams, local, waits=False):
    connections = [connect(address, port, local) for _ in range(int(streams))]
    rng = random.Random(1)
    came = [0] * len(connections)
    for number in range(int(rounds)):
        if waits and number == int(rounds) // 2:
            print("half", flush=True)
            sys.stdin.readline()
        message = rng.randbytes(SIZE)
        for n, connection in enumerate(connections):
            try:
                connection.sendall(message)
                back = whole(connection)
            except (ConnectionResetError, BrokenPipeError):
                back = None
            if back is None:
                return print("ended", came[n])
            assert back == message, "other octets came back"
            came[n] += SIZE
    for octets in came:
        print("payload", 2 * octets)


if __name__ == "__main__":
    if sys.argv[1] == "resume":
        echo(socket.socket(fileno=int(sys.argv[2])))
    else:
        {"serve": serve, "ping": ping, "hold": hold}[sys.argv[1]](*sys.argv[2:])
