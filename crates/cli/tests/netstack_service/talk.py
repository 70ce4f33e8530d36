"""talk.py tcp|udp serve [ADDRESS] | call ADDRESS PORT: octets there and back. The server prints its port. The caller prints its own name and
that of the other end as soon as it is connected, then reads lines, a number of trips each, and prints `done` after it; `serve` ends
with its caller."""
import socket
import sys

kind, role = sys.argv[1:3]
end = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
if role == "serve":
    end.bind((sys.argv[3] if sys.argv[3:] else "0.0.0.0", 0))
    if kind == "tcp":
        end.listen()
    print(end.getsockname()[1], flush=True)
    if kind == "tcp":
        end, _ = end.accept()
        while octets := end.recv(100):
            end.sendall(octets)
    while True:
        octets, whose = end.recvfrom(100)
        end.sendto(octets, whose)
end.connect((sys.argv[3], int(sys.argv[4])))
print("%s:%d %s:%d" % (end.getsockname() + end.getpeername()), flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        end.send(b"again")
        end.recv(100)
    print("done", flush=True)
