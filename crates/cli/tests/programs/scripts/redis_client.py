"""Checks a Redis server: redis_client.py transactions|pubsub|snapshot|restored PORT. Prints the payload moved."""
import hashlib
import socket
import sys
import threading
import time


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.reader = self.socket.makefile("rb")
        self.sent = 0

    def send(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        text = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        self.socket.sendall(text)
        self.sent += len(text)

    def reply(self):
        line = self.reader.readline()
        assert line.endswith(b"\r\n"), f"connection ended in {line!r}"
        kind, rest = line[:1], line[1:-2]
        if kind in b"+-":
            return line[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.reader.read(int(rest) + 2)
            assert data.endswith(b"\r\n"), "bulk string without its line end"
            return data[:-2]
        assert kind == b"*", line
        return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]

    def call(self, *words):
        self.send(*words)
        return self.reply()


def value(key, size):
    """The only value that `key` can have."""
    seed = hashlib.sha256(str(key).encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def expect(got, wanted):
    assert got == wanted, f"got {str(got)[:200]}, wanted {str(wanted)[:200]}"


def transactions(port):
    a, b = Redis(port), Redis(port)
    for i in range(1, 3001):
        data = value(i, 100 + i % 900)
        expect(a.call("MULTI"), b"+OK")
        expect(a.call("INCR", "counter"), b"+QUEUED")
        expect(a.call("SET", f"k{i}", data), b"+QUEUED")
        expect(a.call("GET", f"k{i}"), b"+QUEUED")
        expect(a.call("EXEC"), [i, b"+OK", data])
        if i % 10 == 0:
            # A key that another connection changes between WATCH and EXEC: nothing happens.
            expect(a.call("WATCH", "watched"), b"+OK")
            expect(b.call("SET", "watched", i), b"+OK")
            expect(a.call("MULTI"), b"+OK")
            expect(a.call("SET", "watched", "lost"), b"+QUEUED")
            expect(a.call("EXEC"), None)
            expect(b.call("GET", "watched"), str(i).encode())
            expect(a.call("MULTI"), b"+OK")
            expect(a.call("DISCARD"), b"+OK")
    return a.sent + b.sent


def pubsub(port):
    count, channels = 5000, ("one", "two")
    subscribers = [Redis(port) for _ in range(3)]
    for s in subscribers:
        s.send("SUBSCRIBE", *channels)
        for n, c in enumerate(channels, 1):
            expect(s.reply(), [b"subscribe", c.encode(), n])
    failures = []

    def listen(number, subscriber):
        try:
            for i in range(count):
                channel = channels[i % 2]
                expect(subscriber.reply(), [b"message", channel.encode(), value(i, 200 + i % 3000)])
        except BaseException as e:
            failures.append(f"subscriber {number}: {e!r}")

    threads = [threading.Thread(target=listen, args=x, daemon=True) for x in enumerate(subscribers)]
    for t in threads:
        t.start()
    publisher = Redis(port)
    for i in range(count):
        expect(publisher.call("PUBLISH", channels[i % 2], value(i, 200 + i % 3000)), len(subscribers))
    for t in threads:
        t.join()
    assert not failures, failures
    # The server sends each message to every subscriber.
    return publisher.sent * (1 + len(subscribers)) // 2


KEYS, SIZE = 3000, 4000


def all_keys(client):
    for i in range(KEYS):
        expect(client.call("GET", f"kept{i}"), value(i, SIZE))


def info(client, name):
    fields = dict(l.split(b":", 1) for l in client.call("INFO", "persistence").split(b"\r\n") if b":" in l)
    return fields[name]


def snapshot(port):
    main = Redis(port)
    for i in range(KEYS):
        expect(main.call("SET", f"kept{i}", value(i, SIZE)), b"+OK")
    all_keys(main)

    writing = threading.Event()
    stop = threading.Event()
    failures, sent = [], []

    def write(number):
        try:
            client, i = Redis(port), 0
            while not stop.is_set():
                data = value((number, i), 50 + i % 5000)
                expect(client.call("SET", f"hot{number}", data), b"+OK")
                expect(client.call("GET", f"hot{number}"), data)
                i += 1
                if i == 200:
                    writing.set()
            sent.append(client.sent)
        except BaseException as e:
            failures.append(f"writer {number}: {e!r}")
            writing.set()

    threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(3)]
    for t in threads:
        t.start()
    assert writing.wait(60), "no traffic"
    for _ in range(3):
        expect(main.call("BGSAVE"), b"+Background saving started")
        all_keys(main)
        deadline = time.monotonic() + 60
        while info(main, b"rdb_bgsave_in_progress") != b"0":
            assert time.monotonic() < deadline, "the snapshot does not end"
        expect(info(main, b"rdb_last_bgsave_status"), b"ok")
        all_keys(main)
    stop.set()
    for t in threads:
        t.join()
    assert not failures, failures
    all_keys(main)
    return main.sent + sum(sent)


def restored(port):
    all_keys(Redis(port))
    return 0


part = {"transactions": transactions, "pubsub": pubsub, "snapshot": snapshot, "restored": restored}[sys.argv[1]]
print("payload", part(int(sys.argv[2])))
