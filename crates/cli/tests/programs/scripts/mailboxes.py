"""mailboxes.py PORT MODE USER: a sender to an echo server, in whose mailbox it writes. MODE: its "worker", which has closed the socket, becomes
USER; "many": so many pairs of sockets of this process talk one after the other, USER in number. Says what is mapped of mailboxes then."""
import os
import socket
import sys


def mapped():
    """The numbers of the mailboxes that are mapped."""
    with open("/proc/self/maps") as maps:
        return [line.split()[4] for line in maps if "/memfd:bypath-mailbox" in line]


def bound():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    s.settimeout(30)
    return s


def talk(port):
    """A socket that has a mailbox to write to."""
    s = bound()
    s.connect(("127.0.0.1", port))
    for _ in range(20000):
        s.send(b"said")
        assert s.recv(100) == b"said"
        if mapped():
            return s
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


def worker(s, user):
    child = os.fork()
    if child == 0:
        s.close()
        become(user)
        return
    code = os.waitpid(child, 0)[1]
    os._exit(int(code != 0))


def main():
    port, mode, user = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if mode == "many":
        many(user)
    else:
        s = talk(port)
        print("before", len(mapped()), flush=True)
        worker(s, user)
    print("after", len(mapped()), flush=True)


main()
