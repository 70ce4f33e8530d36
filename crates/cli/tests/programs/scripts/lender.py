"""lender.py server: echoes datagrams by a socket that other programs could inherit, and looks again and again when none come.
lender.py client PORT: sends from every address, by a port that the kernel has chosen; prints that, and stays."""
import signal
import socket
import sys

ROUNDS = 400


def server():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    s.set_inheritable(True)
    print("port", s.getsockname()[1], flush=True)
    while True:
        s.settimeout(0.02)
        try:
            octets, source = s.recvfrom(2048)
        except TimeoutError:
            continue
        s.sendto(octets, source)


def client(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(30)
    for n in range(ROUNDS):
        s.sendto(n.to_bytes(4, "big"), ("127.0.0.1", int(port)))
        assert int.from_bytes(s.recv(2048), "big") == n
    print("own", s.getsockname()[1], flush=True)
    signal.pause()


globals()[sys.argv[1]](*sys.argv[2:])
