"""writing.py lock|tail|held|stopped PORT ENDS SIZE WORD: a process exchanges octets with an echo server over a connection that it made after a fork, while the child writes
into a word of that one's record, which is the second of SIZE octets from octet ENDS on. `lock`: that a thread of its parent writes, one that does not, or the
one that is about to. `tail`: that more octets, or fewer, were sent. `held`: that somebody else of the family writes, a process that is about to be born, the first
one of all, or one that sleeps; the child is killed then. `stopped`: a child that was forked later says that it writes, and stops."""
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading

MODE = sys.argv[1]
PORT, ENDS, SIZE, WORD = map(int, sys.argv[2:])
TURNS = 200
# Of a word's process: it has no place in the table, and this is its id.
UNPLACED = 1 << 31


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


def lie_of_others(asked, done):
    word = shared() + ENDS + SIZE + WORD
    while lie := os.read(asked, 8):
        ctypes.memmove(word, lie, 8)
        os.write(done, b"x")
    os._exit(0)


def liar(lies):
    asked, ask = os.pipe()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ask)
        os.close(told)
        lies(asked, tell)
    # Should the child end, it is heard.
    os.close(tell)
    return child, ask, told


def held():
    """One liar for each lie, all forked before the connection is made."""
    signal.alarm(60)
    line_before = line()
    liars = [liar(lie_of_others) for _ in range(3)]
    second = line()
    # As of now others may have it, too.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    sleeper = subprocess.Popen(["sleep", "600"])
    lied = answers = 0
    lies = [41 << 32 | 5, (UNPLACED | 1) << 32 | 1, (UNPLACED | sleeper.pid) << 32 | sleeper.pid]
    for lie, (child, ask, told) in zip(lies, liars):
        # By the ring once more.
        for _ in range(5):
            second.sendall(b"ping")
            assert second.recv(100) == b"ping"
        os.write(ask, lie.to_bytes(8, "little"))
        lied += len(os.read(told, 1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        second.sendall(b"octets")
        answers += second.recv(100) == b"octets"
    sleeper.kill()
    sleeper.wait()
    line_before.close()
    second.close()
    print("lied", lied)
    print("answers", answers, flush=True)


def stopped():
    """Its parent waits for as long as it is stopped."""
    signal.alarm(60)
    first = line()
    go_on, told = os.pipe()
    if os.fork() == 0:
        # What comes has a relative from the first on, who is older.
        os.close(told)
        os.read(go_on, 1)
        os._exit(0)
    second = line()
    word = shared() + ENDS + SIZE + WORD
    child = os.fork()
    if child == 0:
        own = (UNPLACED | os.getpid()) << 32 | threading.get_native_id()
        ctypes.memmove(word, own.to_bytes(8, "little"), 8)
        os.kill(os.getpid(), signal.SIGSTOP)
        ctypes.memset(word, 0, 8)
        os._exit(0)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    sender = threading.Thread(target=second.sendall, args=[b"octets"])
    sender.start()
    sender.join(2.5)
    waits = int(sender.is_alive())
    os.kill(child, signal.SIGCONT)
    sender.join()
    os.waitpid(child, 0)
    os.close(told)
    os.wait()
    print("lied", waits)
    print("answers", int(second.recv(100) == b"octets"), flush=True)
    first.close()


def main():
    if MODE in ("held", "stopped"):
        return {"held": held, "stopped": stopped}[MODE]()
    # Whoever is kept in a call for so long is ended.
    signal.alarm(60)
    first, stop = line(), threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    threads = [other.native_id, threading.get_native_id()]
    child, ask, told = liar(lambda asked, done: lie(threads, asked, done))
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
