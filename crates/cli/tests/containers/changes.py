"""changes.py CASE: two UDP sockets of this process, the one sends to the other, on a network of its own; after some hundred datagrams the network changes. Prints
what became of those before, and of those after it."""
import collections
import errno
import socket
import subprocess
import sys

ADDRESS, OTHER = "10.77.0.1", "10.77.0.2"
CASE = sys.argv[1]


def ip(*words):
    subprocess.run(["ip", *words], check=True, env={})


def once(text):
    """A datagram is sent; what the sender and the receiver hear. The receiver has looked in vain just before."""
    try:
        receiver.recv(100)
        return "something else"
    except BlockingIOError:
        pass
    try:
        sender.sendto(text, to)
    except OSError as e:
        return errno.errorcode[e.errno]
    try:
        got, whose = receiver.recvfrom(70000)
        return "arrives from " + whose[0] if got == text else "something else"
    except BlockingIOError:
        return "is lost"


def turns(what, text=b"text", count=400):
    outcomes = collections.Counter(once(text) for _ in range(count))
    print(what + ":", ", ".join(sorted(outcomes)), flush=True)


ip("link", "set", "lo", "up")
for address in (ADDRESS, OTHER):
    ip("addr", "add", address + "/32", "dev", "lo")
six = CASE == "mtu of IPv6"
family, to = (socket.AF_INET6, ("::1", 9300)) if six else (socket.AF_INET, (ADDRESS, 9300))
receiver = socket.socket(family, socket.SOCK_DGRAM)
receiver.bind(("", 9300) if CASE == "address of anybody" else to)
receiver.setblocking(False)
sender = socket.socket(family, socket.SOCK_DGRAM)
turns("before")
if CASE in ("address", "address of anybody"):
    ip("addr", "del", ADDRESS + "/32", "dev", "lo")
    turns("without the address")
    ip("addr", "add", ADDRESS + "/32", "dev", "lo")
elif CASE == "another host":
    ip("link", "add", "out", "type", "veth", "peer", "name", "far")
    ip("link", "set", "out", "up")
    ip("link", "set", "far", "up")
    ip("addr", "add", "10.88.0.1/24", "dev", "out")
    ip("addr", "del", ADDRESS + "/32", "dev", "lo")
    ip("route", "add", ADDRESS + "/32", "via", "10.88.0.2")
    turns("elsewhere")
    ip("route", "del", ADDRESS + "/32")
    ip("addr", "add", ADDRESS + "/32", "dev", "lo")
elif CASE == "link":
    ip("link", "set", "lo", "down")
    turns("down")
    ip("link", "set", "lo", "up")
elif CASE == "source":
    ip("route", "replace", "local", ADDRESS, "dev", "lo", "table", "local", "src", OTHER)
    turns("from the other")
elif CASE in ("mtu", "mtu of IPv6"):
    refuse = [(socket.IPPROTO_IPV6, 23, 2)] if six else [(socket.IPPROTO_IP, 10, 2)]
    longest = 1500 - (48 if six else 28)
    ip("link", "set", "lo", "mtu", "1500")
    turns("in pieces", b"x" * (longest + 1))
    for option in refuse:
        sender.setsockopt(*option)
    turns("whole", b"x" * longest)
    turns("too long", b"x" * (longest + 1))
    ip("link", "set", "lo", "mtu", "9000")
    turns("not any more", b"x" * (longest + 1))
turns("again")
