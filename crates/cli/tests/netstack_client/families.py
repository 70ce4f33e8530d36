"""Addresses of IPv6 with a scope, and those of IPv4 on sockets of IPv6.

Arguments: an address of IPv4, one of IPv6, the user's number, --, and what the program is started by.
"""

import errno, socket, subprocess, sys

V4, V6 = sys.argv[1:3]
if "--" in sys.argv:
    *_, user = sys.argv[: sys.argv.index("--")]
    becomes = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
    program = [sys.executable, sys.argv[0], V4, V6]
    sys.exit(subprocess.run(becomes + sys.argv[sys.argv.index("--") + 1 :] + program).returncode)

STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
MAPPED = "::ffff:" + V4
LONGEST = 20


def tell(what, call):
    try:
        said = call()
    except OSError as e:
        said = errno.errorcode.get(e.errno, e)
    print(what, said, flush=True)


def new(kind, alone=False):
    s = socket.socket(socket.AF_INET6, kind)
    s.settimeout(LONGEST)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
    return s


def bound(s, *address):
    s.bind(address)
    return s.getsockname()[0], s.getsockname()[2:]


# Its scope is ignored where an address has none.
for scope in 0, 1, 999:
    listener = new(STREAM)
    tell(f"stream {scope}: bind", lambda: bound(listener, V6, 0, 0, scope))
    listener.listen()
    port = listener.getsockname()[1]
    caller = new(STREAM)
    tell(f"stream {scope}: connect", lambda: caller.connect((V6, port, 0, scope)))
    tell(f"stream {scope}: accept", lambda: listener.accept()[1][0])
    tell(f"stream {scope}: getpeername", lambda: caller.getpeername()[2:])
    for own in V6, "::":
        hearer = new(DGRAM)
        tell(f"datagrams {scope}: bind", lambda: bound(hearer, own, 0, 0, scope))
        to = (V6, hearer.getsockname()[1], 0, scope)
        sender = new(DGRAM)
        tell(f"datagrams {scope}: sendto", lambda: sender.sendto(b"one", to))
        tell(f"datagrams {scope}: recv", lambda: hearer.recv(9))
        connected = new(DGRAM)
        tell(f"datagrams {scope}: connect", lambda: connected.connect(to))
        tell(f"datagrams {scope}: getpeername", lambda: connected.getpeername()[2:])
        tell(f"datagrams {scope}: send", lambda: connected.send(b"two"))
        tell(f"datagrams {scope}: recv", lambda: hearer.recv(9))
    # A group of more than a link.
    tell(f"datagrams {scope}: bind to a group", lambda: bound(new(DGRAM), "ff05::77", 0, 0, scope)[0])

listener = socket.create_server((V4, 0))
port = listener.getsockname()[1]
for kind, word in (STREAM, "stream"), (DGRAM, "datagrams"):
    tell(f"{word}: connect of IPv6 alone", lambda: new(kind, True).connect((MAPPED, port)))
    tell(f"{word}: connect of both", lambda: new(kind).connect((MAPPED, port)))
    for own in "::", V6, MAPPED, "::ffff:0.0.0.0":
        for alone in False, True:
            s = new(kind, alone)
            what = f"{word}: {own} {'alone' if alone else 'both'}"
            tell(f"{what}: bind", lambda: bound(s, own, 0)[0])
            tell(f"{what}: IPV6_V6ONLY", lambda: s.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
            tell(f"{what}: connect", lambda: s.connect((MAPPED, port)))
tell("datagrams: sendto of IPv6 alone", lambda: new(DGRAM, True).sendto(b"x", (MAPPED, port)))
tell("datagrams: sendto of both", lambda: new(DGRAM).sendto(b"x", (MAPPED, port)))
