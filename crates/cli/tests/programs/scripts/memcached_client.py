"""Four connections to memcached at once: set, get, several keys in one get, append, delete, pipelined sets."""
import random
import socket
import sys
import threading

ROUNDS = 250
failures = []
payload = 0
counting = threading.Lock()


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.reader = self.socket.makefile("rb")

    def line(self):
        return self.reader.readline().rstrip(b"\r\n")

    def store(self, verb, key, value, more=b""):
        self.socket.sendall(b"%s %s 0 0 %d%s\r\n%s\r\n" % (verb, key, len(value), more, value))

    def get(self, *keys):
        self.socket.sendall(b"get " + b" ".join(keys) + b"\r\n")
        found = {}
        while True:
            head = self.line().split()
            if head == [b"END"]:
                return found
            assert head[0] == b"VALUE", head
            value = self.reader.read(int(head[3]) + 2)
            assert value.endswith(b"\r\n"), "value without its line end"
            found[head[1]] = value[:-2]


def check(number, port):
    global payload
    rng = random.Random(number)
    client = Client(port)
    moved = 0
    for i in range(ROUNDS):
        size = rng.choice((0, 1, 10, 100, 1000, 4096, 20000, 100000, 500000))
        value = rng.randbytes(size)
        key = b"key-%d-%d" % (number, i % 40)
        client.store(b"set", key, value)
        assert client.line() == b"STORED"
        assert client.get(key) == {key: value}, "other value came back"
        moved += 2 * size

        # Many sets in one write without waiting, then one get for all of them.
        small = {b"s-%d-%d" % (number, k): rng.randbytes(rng.randrange(300)) for k in range(20)}
        for k, v in small.items():
            client.store(b"set", k, v)
        for _ in small:
            assert client.line() == b"STORED"
        assert client.get(*small) == small, "other values came back"

        client.store(b"append", key, b"tail")
        assert client.line() == b"STORED"
        assert client.get(key) == {key: value + b"tail"}
        client.socket.sendall(b"delete %s\r\n" % key)
        assert client.line() == b"DELETED"
        assert client.get(key) == {}
    client.socket.sendall(b"quit\r\n")
    assert client.line() == b"", "bytes after the last answer"
    with counting:
        payload += moved


def run(number, port):
    try:
        check(number, port)
    except BaseException as e:
        failures.append(f"connection {number}: {e!r}")


threads = [threading.Thread(target=run, args=(n, int(sys.argv[1])), daemon=True) for n in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for f in failures:
    print(f, file=sys.stderr)
print("payload", payload)
sys.exit(1 if failures else 0)
