"""talk.py serve ADDRESS | call PORT ADDRESS | resume DESCRIPTOR: HTTP or RESP over one connection that stays open. The server prints its port. The caller
reads lines `http COUNT SIZE`, `resp COUNT` or `echo COUNT`, whose requests have numbers, does that, and prints `done`, until its input ends;
`ask 1` only sends, and stops itself, `hear 1` only receives, `exec 0` is done by another image of its process."""
import os
import signal
import socket
import sys


def serve(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, 0), family=family)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while request := connection.recv(4096):
            if request.startswith(b"GET /"):
                size = int(request.split()[1][1:])
                answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % size
                connection.sendall(answer + b"x" * size)
            elif b"ECHO" in request:
                connection.sendall(request.split(b"ECHO\r\n", 1)[1])
            else:
                connection.sendall(b"+PONG\r\n")
        connection.close()


def call(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Nothing is read ahead: another image would miss it.
    while line := sys.stdin.buffer.raw.readline().decode():
        kind, count, *size = line.split()
        if kind == "exec":
            connection.set_inheritable(True)
            os.execv(sys.executable, [sys.executable, __file__, "resume", str(connection.fileno())])
        for number in range(int(count)):
            if kind == "echo":
                answer, text = b"", b"$6\r\n%06d\r\n" % number
                connection.sendall(b"*2\r\n$4\r\nECHO\r\n" + text)
                while len(answer) < len(text):
                    answer += connection.recv(len(text) - len(answer))
            elif kind == "http":
                connection.sendall(b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % size[0].encode())
                answer = b""
                while b"\r\n\r\n" not in answer:
                    answer += connection.recv(65536)
                left = int(size[0]) - len(answer.split(b"\r\n\r\n", 1)[1])
                while left:
                    left -= len(connection.recv(min(left, 65536)))
            else:
                if kind != "hear":
                    connection.sendall(b"*1\r\n$4\r\nPING\r\n")
                if kind == "ask":
                    os.kill(os.getpid(), signal.SIGSTOP)
                answer = b""
                while kind != "ask" and len(answer) < 7:
                    answer += connection.recv(7 - len(answer))
        print("done", flush=True)


try:
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    elif sys.argv[1] == "resume":
        print("done", flush=True)
        call(socket.socket(fileno=int(sys.argv[2])))
    else:
        call(socket.create_connection((sys.argv[3], int(sys.argv[2]))))
except ConnectionError:
    sys.exit(1)
