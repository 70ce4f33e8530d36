"""echo_client.py asyncio|selectors|threads PORT: checks an echo server over several connections at once, once
in step and once with a writer that does not wait for its reader. Prints the payload moved."""
import asyncio
import hashlib
import random
import socket
import sys
import threading

CONNECTIONS, MESSAGES, STREAM = 6, 1500, 8 << 20


def messages(number):
    rng = random.Random(number)
    return (rng.randbytes(rng.choice((1, 14, 64, 1400, 5000, 30000))) for _ in range(MESSAGES))


def blocks(number):
    """STREAM bytes in blocks of changing size."""
    rng = random.Random(1000 + number)
    left = STREAM
    while left:
        size = min(left, rng.randrange(1, 100_000))
        left -= size
        yield rng.randbytes(size)


async def asynchronous(number, port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    payload = 0
    for m in messages(number):
        writer.write(m)
        await writer.drain()
        assert await reader.readexactly(len(m)) == m, "other bytes came back"
        payload += 2 * len(m)
    sent = hashlib.sha256()

    async def write():
        for b in blocks(number):
            sent.update(b)
            writer.write(b)
            await writer.drain()
        writer.write_eof()

    task = asyncio.create_task(write())
    got, size = hashlib.sha256(), 0
    while data := await reader.read(65536):
        got.update(data)
        size += len(data)
    await task
    assert size == STREAM and sent.digest() == got.digest(), f"{size} bytes of {STREAM} came back"
    writer.close()
    return payload + 2 * STREAM


def blocking(number, port):
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    payload = 0
    for m in messages(number):
        s.sendall(m)
        back = bytearray()
        while len(back) < len(m):
            data = s.recv(len(m) - len(back))
            assert data, "end of file in a message"
            back += data
        assert back == m, "other bytes came back"
        payload += 2 * len(m)
    sent = hashlib.sha256()

    def write():
        for b in blocks(number):
            sent.update(b)
            s.sendall(b)
        s.shutdown(socket.SHUT_WR)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    got, size = hashlib.sha256(), 0
    while data := s.recv(65536):
        got.update(data)
        size += len(data)
    writer.join()
    assert size == STREAM and sent.digest() == got.digest(), f"{size} bytes of {STREAM} came back"
    s.close()
    return payload + 2 * STREAM


async def all_asynchronous(port):
    return sum(await asyncio.gather(*(asynchronous(n, port) for n in range(CONNECTIONS))))


def all_blocking(port):
    results, failures = [], []

    def run(number):
        try:
            results.append(blocking(number, port))
        except BaseException as e:
            failures.append(f"connection {number}: {e!r}")

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(CONNECTIONS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    return sum(results)


port = int(sys.argv[2])
print("payload", asyncio.run(all_asynchronous(port)) if sys.argv[1] == "asyncio" else all_blocking(port))
