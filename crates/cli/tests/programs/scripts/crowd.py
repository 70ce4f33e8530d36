"""crowd.py PORT CONNECTIONS ROUNDS SIZE [rest]: messages over many connections to an echo server, each checked.

Prints the payload moved. With `rest` it then waits until its rings' memory is given back, prints how much is left, and
does one more round.
"""
import random
import re
import select
import socket
import sys
import time


def one_round(connections, rng, size):
    messages = [rng.randbytes(size) for _ in connections]
    # In groups, so that neither side's buffers fill.
    for start in range(0, len(connections), 64):
        group = list(zip(connections, messages))[start : start + 64]
        for connection, message in group:
            connection.sendall(message)
        for connection, message in group:
            back = b""
            while len(back) < size:
                data = connection.recv(size - len(back))
                assert data, "end of file in a message"
                back += data
            assert back == message, "other bytes came back"
    return 2 * size * len(connections)


def arena_kilobytes():
    """Memory of rings that this process has touched and that exists."""
    total = 0
    with open("/proc/self/smaps") as maps:
        for line in maps:
            if re.match(r"[0-9a-f]+-", line):
                ours = "/memfd:bypath-arena" in line
            elif ours and line.startswith("Rss:"):
                total += int(line.split()[1])
    return total


def main():
    port, count, rounds, size = map(int, sys.argv[1:5])
    rng = random.Random(1)
    connections = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(count)]
    payload = sum(one_round(connections, rng, size) for _ in range(rounds))
    if sys.argv[5:] == ["rest"]:
        print("busy-kilobytes", arena_kilobytes(), flush=True)
        # A thread that waits for a connection gives memory back, a program that never waits keeps it.
        end = time.monotonic() + 20
        while arena_kilobytes() > 8 * count and time.monotonic() < end:
            select.select(connections[:1], [], [], 0.3)
        print("resting-kilobytes", arena_kilobytes(), flush=True)
        payload += one_round(connections, rng, size)
    print("payload", payload)


main()
