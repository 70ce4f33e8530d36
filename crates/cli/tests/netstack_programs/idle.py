"""A server whose first process never accepts: idle.py HOST PORT tcp, or a socket of datagrams that nobody receives from: idle.py HOST PORT udp

A child accepts, and answers as by HTTP. At SIGUSR1 the first process makes the calls of a server that reads its configuration anew, and says what became
of them; at SIGUSR2 the child says what it has of the same socket. Each says one line of JSON.
"""

import json
import os
import signal
import socket
import sys

ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\noctets"
KEEPALIVE = (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
IDLE = (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
FAST = (socket.IPPROTO_TCP, socket.TCP_FASTOPEN)
TTL = (socket.IPPROTO_IP, socket.IP_TTL)
turn = 0


def says(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def has(heard):
    return [heard.getsockname()[1]] + [heard.getsockopt(*option) for option in (KEEPALIVE, IDLE)]


def reads_anew(heard, *_):
    global turn
    turn += 1
    try:
        if heard.type == socket.SOCK_DGRAM:
            heard.setsockopt(*TTL, 60 + turn)
            says([turn, heard.getsockname()[1], heard.getsockopt(*TTL)])
            return
        heard.setsockopt(*KEEPALIVE, 1)
        heard.setsockopt(*FAST, 16)
        heard.setsockopt(*IDLE, 70 + turn)
        heard.listen(100 + turn)
        says([turn] + has(heard))
    except OSError as error:
        says(f"{turn}: {error}")


def serves(heard):
    signal.signal(signal.SIGUSR2, lambda *_: says(["child"] + has(heard)))
    heard.setblocking(True)
    while True:
        try:
            caller, _ = heard.accept()
        except OSError:
            continue
        caller.recv(1000)
        caller.sendall(ANSWER)
        caller.close()


def main():
    at = (sys.argv[1], int(sys.argv[2]))
    child = 0
    if sys.argv[3] == "udp":
        heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        heard.bind(at)
    else:
        heard = socket.create_server(at)
        child = os.fork()
        if child == 0:
            serves(heard)
    signal.signal(signal.SIGUSR1, lambda *_: reads_anew(heard))
    signal.signal(signal.SIGUSR2, lambda *_: os.kill(child, signal.SIGUSR2))
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    says("waits")
    while not ended:
        signal.pause()
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


main()
