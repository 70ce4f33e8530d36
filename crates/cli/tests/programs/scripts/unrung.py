"""unrung.py server | first PORT | next PORT: a server that has had a peer of another user ("first") forks a process for each further one ("next"). While it forks
nothing can be made that needs memory of its own, such as what rings bells. The peer sleeps before each of its answers, and says how many came."""
import os
import resource
import signal
import socket
import sys
import time

QUICK, SLOW = 200, 20
NONE = 1 << 20


def answer(s, times, rest=0.0):
    for _ in range(times):
        octets = s.recv(100)
        time.sleep(rest)
        s.sendall(octets)


def ask(s, times):
    answers = 0
    for _ in range(times):
        s.sendall(b"octets")
        answers += s.recv(100) == b"octets"
    return answers


def serve():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    first, _ = listener.accept()
    answer(first, QUICK)
    while True:
        s, _ = listener.accept()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (NONE, most))
        child = os.fork()
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if child == 0:
            answer(s, QUICK)
            answer(s, SLOW, 0.05)
            os._exit(0)
        s.close()


def call(role, port):
    # Whoever is kept in a call for so long is ended.
    signal.alarm(30)
    s = socket.create_connection(("127.0.0.1", port))
    ask(s, QUICK)
    if role == "first":
        print("served", flush=True)
        sys.stdin.read()
        return
    print("answers", ask(s, SLOW), flush=True)


if sys.argv[1] == "server":
    serve()
else:
    call(sys.argv[1], int(sys.argv[2]))
