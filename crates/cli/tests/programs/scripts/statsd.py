"""statsd.py server: counts what it is told, as StatsD does, and prints its port; a question is answered by the counts.
statsd.py client PORT COUNT: tells each of three counters in turn, and waits for nobody; then asks until it is answered. Prints
how many were counted. What comes must come in the order in which it was told."""
import json
import socket
import sys

NAMES = ("requests", "errors", "bytes")


def serve():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    print("port", s.getsockname()[1], flush=True)
    seen = {name: [0, -1, 0] for name in NAMES}
    while True:
        data, address = s.recvfrom(512)
        if data == b"stats":
            s.sendto(json.dumps(seen).encode(), address)
            continue
        name, _, number = data.partition(b":")
        count = seen[name.decode()]
        number = int(number.removesuffix(b"|c"))
        count[0] += 1
        count[2] += number <= count[1]
        count[1] = number


def tell(port, count):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(count):
        for name in NAMES:
            s.sendto(f"{name}:{number}|c".encode(), ("127.0.0.1", port))
    s.settimeout(0.1)
    for _ in range(300):
        s.sendto(b"stats", ("127.0.0.1", port))
        try:
            seen = json.loads(s.recv(512))
            break
        except TimeoutError:
            pass
    for name, (counted, last, disorder) in seen.items():
        assert disorder == 0 and 0 < counted <= count and last < count, (name, counted, last, disorder)
    print("counted", sum(counted for counted, _, _ in seen.values()))


if sys.argv[1] == "server":
    serve()
else:
    tell(int(sys.argv[2]), int(sys.argv[3]))
