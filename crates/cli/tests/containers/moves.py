"""moves.py: a process has two UDP sockets of each of two network namespaces, with equal addresses, and is in the one and then in the other. Each sender sends
to the receiver's address; prints which of the receivers has it."""
import collections
import ctypes
import os
import socket
import subprocess

CLONE_NEWNET = 0x40000000
FROM, TO = ("127.0.0.1", 9300), ("127.0.0.1", 9301)
c = ctypes.CDLL(None)


class Network:
    """Of this thread."""

    def __init__(self):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, env={})
        self.own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.receiver, self.sender = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        self.receiver.bind(TO)
        self.receiver.setblocking(False)
        self.sender.bind(FROM)

    def enter(self):
        assert c.setns(self.own, CLONE_NEWNET) == 0


def has(network, text):
    try:
        return network.receiver.recv(100) == text
    except BlockingIOError:
        return False


def turns(what, count):
    outcomes = collections.Counter()
    for number in range(count):
        for name, network in networks.items():
            text = b"%s %d" % (name.encode(), number)
            network.sender.sendto(text, TO)
            # Who finds nothing looks for the next one.
            found = [other for other, at in networks.items() for _ in range(2) if has(at, text)]
            outcomes["of %s to %s" % (name, " ".join(found) or "nobody")] += 1
    print(what + ":", ", ".join(sorted(outcomes)), flush=True)


networks = {"one": Network()}
assert c.unshare(CLONE_NEWNET) == 0
networks["other"] = Network()
turns("in the other", 1000)
networks["one"].enter()
turns("in the one", 4000)
