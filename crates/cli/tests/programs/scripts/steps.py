"""steps.py PORT: messages in step with an echo server over one connection, 200 at first and 200 more for each SIGUSR1;
each time prints the payload moved so far. Between two steps it waits for the signal, in no call on a socket.

steps.py PORT stream: one thread sends until SIGUSR1 while another reads and checks what comes back."""
import signal
import socket
import sys
import threading

from ping import connect, ping

BLOCK = bytes(range(251)) * 1024


def stream(connection):
    sent = 0
    stop = threading.Event()

    def send():
        nonlocal sent
        while not stop.is_set():
            connection.sendall(BLOCK)
            sent += len(BLOCK)
        connection.shutdown(socket.SHUT_WR)

    def wait():
        signal.sigwait([signal.SIGUSR1])
        stop.set()

    threads = [threading.Thread(target=work) for work in (send, wait)]
    for thread in threads:
        thread.start()
    at = 0
    while data := connection.recv(1 << 16):
        start = at % len(BLOCK)
        expected = BLOCK[start : start + len(data)]
        expected += BLOCK[: len(data) - len(expected)]
        assert data == expected, f"other bytes at {at}"
        at += len(data)
    for thread in threads:
        thread.join()
    assert at == sent, (at, sent)
    print("payload", 2 * sent, flush=True)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    connection = connect(int(sys.argv[1]))
    if len(sys.argv) > 2:
        print("begun", flush=True)
        stream(connection)
        sys.exit()
    payload = 0
    while True:
        payload += ping(connection, 200)
        print("payload", payload, flush=True)
        signal.sigwait([signal.SIGUSR1])
