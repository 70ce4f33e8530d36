"""mailboxes.py PORT MODE NUMBER: what a process has mapped of mailboxes, in numbers. MODE: a "worker" of a sender to the echo server at PORT, which
has closed the socket, becomes the user NUMBER; so does a "sender" by itself, and a "receiver", which a program that it starts writes to; "many": NUMBER pairs
of sockets of this process talk one after the other; so do "cycles", which tell what is left of them."""
import os
import socket
import subprocess
import sys
import time

SO_COOKIE = 57


def mapped():
    """The numbers of the mailboxes that are mapped."""
    with open("/proc/self/maps") as maps:
        return [line.split()[4] for line in maps if "/memfd:bypath-mailbox" in line]


def bound():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    s.settimeout(30)
    return s


def talk(s):
    """Until there is a mailbox to write to."""
    for _ in range(20000):
        s.send(b"said")
        assert s.recv(100) == b"said"
        if mapped():
            return
    raise AssertionError("there is no mailbox")


def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def many(pairs):
    most = 0
    for _ in range(pairs):
        one, other = bound(), bound()
        for _ in range(100):
            for a, b in ((one, other), (other, one)):
                a.sendto(b"said", b.getsockname())
                assert b.recv(100) == b"said"
        most = max(most, len(mapped()))
        one.close()
        other.close()
    print("most", most)


def standing():
    """Descriptors, mappings, and memory in KiB, that of mailboxes left out."""
    with open("/proc/self/maps") as maps:
        mappings = sum("/memfd:bypath-mailbox" not in line for line in maps)
    with open("/proc/self/status") as status:
        kib = next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))
    return len(os.listdir("/proc/self/fd")), mappings, kib


def come_and_go(pairs):
    """How many of the last hundred pairs had mailboxes."""
    had = 0
    for n in range(pairs):
        one, other = bound(), bound()
        for _ in range(20):
            for a, b in ((one, other), (other, one)):
                a.sendto(b"said", b.getsockname())
                assert b.recv(100) == b"said"
        if n >= pairs - 100:
            had += mapped() != []
        one.close()
        other.close()
    return had


def cycles(pairs):
    come_and_go(200)
    before = standing()
    had = come_and_go(pairs)
    for what, then, now in zip(("descriptors", "mappings", "kib"), before, standing()):
        print("more", what, max(0, now - then))
    print("had", had)


def work(s, user):
    child = os.fork()
    if child == 0:
        s.close()
        return become(user)
    os._exit(int(os.waitpid(child, 0)[1] != 0))


def is_named(s):
    """Whether senders find the mailbox of this socket."""
    cookie = int.from_bytes(s.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little")
    with open("/proc/net/unix") as names:
        return f"@bypath/1/udp/{cookie:016x}" in names.read()


def spin(call):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return call()
        except BlockingIOError:
            pass
    raise TimeoutError


def receive(user):
    """Becomes that user while a datagram waits. It comes, and before what is sent later."""
    s = bound()
    s.setblocking(False)
    words = [sys.executable, __file__, str(s.getsockname()[1]), "writer", "0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        # With a mailbox, and some time for its sender to get it.
        left = 100
        while left > 0:
            octets, peer = spin(lambda: s.recvfrom(100))
            left -= is_named(s)
            s.sendto(octets if left > 0 else b"enough", peer)
        assert writer.stdout.readline() == b"sent\n"
        print("before", len(mapped()))
        print("named", int(is_named(s)))
        become(user)
        print("after", len(mapped()))
        print("unnamed", int(not is_named(s)))
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
        assert [spin(lambda: s.recvfrom(100)) for _ in range(2)] == [(b"waits", peer), (b"later", peer)]


def write(port):
    s = bound()
    s.connect(("127.0.0.1", port))
    answer = b""
    while answer != b"enough":
        s.send(b"said")
        answer = s.recv(100)
    s.send(b"waits")
    print("sent", flush=True)
    sys.stdin.readline()
    s.send(b"later")


def main():
    port, mode, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if mode == "writer":
        return write(port)
    if mode == "receiver":
        return receive(number)
    if mode == "many":
        many(number)
    elif mode == "cycles":
        return cycles(number)
    else:
        s = bound()
        s.connect(("127.0.0.1", port))
        talk(s)
        print("before", len(mapped()), flush=True)
        if mode == "worker":
            work(s, number)
        else:
            become(number)
    print("after", len(mapped()), flush=True)


main()
