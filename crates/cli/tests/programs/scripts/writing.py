"""writing.py lock|tail PORT ENDS SIZE WORD: a process exchanges octets with an echo server over a connection that it made after a fork, while the child writes
into a word of that one's record, which is the second of SIZE octets from octet ENDS on. `lock`: that a thread of its parent writes, one that does not, or the
one that is about to. `tail`: that more octets, or fewer, were sent."""
import ctypes
import os
import re
import signal
import socket
import sys
import threading

MODE = sys.argv[1]
PORT, ENDS, SIZE, WORD = map(int, sys.argv[2:])
TURNS = 200


def shared():
    """Where the region is mapped."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "bypath-view" in line:
                return int(re.match("[0-9a-f]+", line)[0], 16)
    sys.exit("nothing is shared")


def line():
    s = socket.create_connection(("127.0.0.1", PORT))
    for _ in range(40):
        s.sendall(b"ping")
        assert s.recv(100) == b"ping"
    return s


def lie(threads, asked, done):
    """The parent founded the family: its place is the first, which is called 1."""
    word = shared() + ENDS + SIZE + WORD
    turn = 0
    while os.read(asked, 1):
        lie = 1 << 32 | threads[turn % 2]
        if MODE == "tail":
            lie = int.from_bytes(ctypes.string_at(word, 8), "little") + (-9 if turn % 2 else 300)
        # Of a connection that is not in memory yet nothing was sent.
        ctypes.memmove(word, (lie % (1 << 64)).to_bytes(8, "little"), 8)
        turn += 1
        os.write(done, b"x")
    os._exit(0)


def main():
    # Whoever is kept in a call for so long is ended.
    signal.alarm(60)
    first, stop = line(), threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    threads = [other.native_id, threading.get_native_id()]
    asked, ask = os.pipe()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ask)
        os.close(told)
        lie(threads, asked, tell)
    # Should the child end, it is heard.
    os.close(tell)
    second = line()
    lied = answers = 0
    for turn in range(TURNS):
        os.write(ask, b"x")
        lied += len(os.read(told, 1))
        what = b"turn %03d" % turn
        try:
            second.sendall(what)
            said = second.recv(1000)
        except ConnectionError:
            said = b""
        # It may be lost. What the other end has heard was said.
        assert what.startswith(said), said
        answers += said == what
        if MODE == "tail" and not said:
            second.close()
            second = line()
    os.close(ask)
    os.waitpid(child, 0)
    stop.set()
    first.close()
    print("lied", lied)
    print("answers", answers, flush=True)


main()
