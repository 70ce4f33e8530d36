"""steady.py PORT CONNECTIONS: messages in step with an echo server over each connection, all compared, until SIGTERM or
SIGINT. "moved N" for each MiB that came back, at the end "payload N", the bytes that were sent by both ends. After SIGINT
the exit status is 130."""
import random
import signal
import socket
import sys
import threading


class Steady:
    def __init__(self, port):
        self.port = port
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.moved = 0
        self.failure = None
        self.status = 0

    def end(self, number, _frame):
        self.status = 130 if number == signal.SIGINT else 0
        self.stop.set()

    def run(self, number):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
                rng = random.Random(number)
                noise = rng.randbytes(1 << 20)
                while not self.stop.is_set():
                    size = rng.choice((1, 64, 1400, 16384, 60000))
                    at = rng.randrange(len(noise) - size)
                    self.message(connection, noise[at : at + size])
        except Exception as error:
            self.failure = self.failure or f"{type(error).__name__}: {error}"
            self.stop.set()

    def message(self, connection, sent):
        connection.sendall(sent)
        back = b""
        while len(back) < len(sent):
            part = connection.recv(len(sent) - len(back))
            if not part:
                raise EOFError("end of file in a message")
            back += part
        if back != sent:
            raise ValueError("other bytes came back")
        with self.lock:
            before, self.moved = self.moved, self.moved + len(back)
            if before >> 20 != self.moved >> 20:
                print("moved", self.moved >> 20, flush=True)


def main():
    steady = Steady(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, steady.end)
    signal.signal(signal.SIGINT, steady.end)
    threads = [threading.Thread(target=steady.run, args=(n,)) for n in range(int(sys.argv[2]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("payload", 2 * steady.moved, flush=True)
    sys.exit(f"failed: {steady.failure}" if steady.failure else steady.status)


main()
