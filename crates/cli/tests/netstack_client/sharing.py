"""Who may share a port with whom, and who of them hears what: two users, each with a process of his own.

Arguments: an address of IPv4, one of IPv6, the users' numbers, --, and what a program of theirs is started by.
"""

import errno, itertools, json, select, socket, subprocess, sys, time

MANY = 48
GROUP = "224.0.0.77"
LONGEST = 20


def work(own):
    """A user's process: a command a line."""
    sockets = {}

    def do(verb, name, *rest):
        if verb == "open":
            kind, address, options = rest
            s = socket.socket(
                socket.AF_INET6 if kind[1] == "6" else socket.AF_INET,
                socket.SOCK_DGRAM if kind[0] == "u" else socket.SOCK_STREAM,
            )
            s.setblocking(False)
            for option, word in (
                ((socket.SOL_SOCKET, socket.SO_REUSEADDR), "address"),
                ((socket.SOL_SOCKET, socket.SO_REUSEPORT), "port"),
                ((socket.SOL_SOCKET, socket.SO_BROADCAST), "all"),
                ((socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), "v6only"),
            ):
                if word in options:
                    s.setsockopt(*option, 1)
            s.bind(tuple(address))
            sockets[name] = s
            if "joins" in options:
                group = socket.inet_aton(GROUP) + socket.inet_aton(own)
                s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            if "listens" in options:
                s.listen()
        elif verb == "listen":
            if name not in sockets:
                return "none"
            sockets[name].listen()
        elif verb == "send":
            sockets[name].sendto(rest[1].encode(), tuple(rest[0]))
        elif verb == "hear":
            heard = []
            for name, s in sockets.items():
                while s.type == socket.SOCK_DGRAM and select.select([s], [], [], 0)[0]:
                    heard.append((name, s.recv(100).decode()))
            return heard
        elif verb == "reset":
            for s in sockets.values():
                s.close()
            sockets.clear()
        return "done"

    for line in sys.stdin:
        try:
            answer = do(*json.loads(line))
        except OSError as e:
            answer = errno.errorcode[e.errno]
        print(json.dumps(answer), flush=True)


if sys.argv[1] == "work":
    work(sys.argv[2])
    sys.exit()

V4, V6, *USERS = sys.argv[1 : sys.argv.index("--")]
BY = sys.argv[sys.argv.index("--") + 1 :]


def begin(user):
    becomes = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
    command = becomes + BY + [sys.executable, sys.argv[0], "work", V4]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


PROCESSES = [begin(user) for user in USERS]


def ask(user, *command):
    PROCESSES[user].stdin.write(json.dumps(command) + "\n")
    return json.loads(PROCESSES[user].stdout.readline())


ports = itertools.count(20000)


def case(what, sockets, to=None, ends=(), listen=False):
    """Opens sockets in this order, sends from many ports, and tells who has heard something. `ends`: what is sent to these afterwards comes last."""
    port = next(ports)
    for user in range(len(USERS)):
        ask(user, "reset", "")
    opened = [ask(user, "open", name, kind, (address, port), options) for user, name, kind, address, options in sockets]
    if listen:
        opened += [ask(user, "listen", name) for user, name, *_ in sockets]
    heard = {}
    if to is not None:
        for n in range(MANY):
            family, own = ("u6", V6) if ":" in to else ("u4", V4)
            ask(0, "open", f"from{n}", family, (own, 0), "all")
            assert ask(0, "send", f"from{n}", (to, port), "x") == "done"
        for end in ends:
            ask(0, "open", f"end{end}", "u6" if ":" in end else "u4", (V6 if ":" in end else V4, 0), "")
            assert ask(0, "send", f"end{end}", (end, port), "end") == "done"
        missing, until = (len(ends) or MANY), time.monotonic() + LONGEST
        while missing > 0:
            assert time.monotonic() < until, (what, heard)
            for user in range(len(USERS)):
                for name, text in ask(user, "hear", ""):
                    missing -= (text == "end") == bool(ends)
                    if text == "x":
                        heard[name] = heard.get(name, 0) + 1
    # Of those that share none goes without; how many each has is a hash's.
    whole = MANY if heard and all(n == MANY for n in heard.values()) else "some"
    print(what, *opened, "->", whole, *sorted(heard), flush=True)


SHARES = "address port"
for kind, address in ("u4", V4), ("u4", "0.0.0.0"), ("u6", V6), ("u6", "::"), ("u6", "::ffff:" + V4):
    to = V6 if address == V6 else V4
    case(f"{address} two users, both say both", [(1, "first", kind, address, SHARES), (0, "last", kind, address, SHARES)], to)
    case(
        f"{address} two of one user after another's",
        [(1, "first", kind, address, SHARES)] + [(0, f"last{n}", kind, address, SHARES) for n in range(2)],
        to,
    )
    case(
        f"{address} two of one user before another's",
        [(0, f"first{n}", kind, address, SHARES) for n in range(2)] + [(1, "last", kind, address, SHARES)],
        to,
    )
    for first, last in ("address", SHARES), (SHARES, "address"), ("address", "address"):
        case(f"{address} {first}, {last}", [(1, "first", kind, address, first), (0, "last", kind, address, last)], to)
    case(f"{address} SO_REUSEPORT alone", [(1, "first", kind, address, "port"), (0, "last", kind, address, "port")])
    case(
        f"{address} two of a user, SO_REUSEPORT alone",
        [(0, "first", kind, address, "port"), (0, "last", kind, address, "port")],
        to,
    )

MAPPED = "::ffff:" + V4
for v4, v6 in (V4, MAPPED), ("0.0.0.0", "::"), ("0.0.0.0", "::ffff:0.0.0.0"):
    for options in "address", SHARES:
        both = [(0, "v4", "u4", v4, options), (1, "v6", "u6", v6, options)]
        case(f"{v4} and {v6} {options}", both, V4)
        case(f"{v6} and {v4} {options}", both[::-1], V4)
for order in ("::", "::ffff:0.0.0.0"), ("::ffff:0.0.0.0", "::"):
    case("{} and {}".format(*order), [(n, address, "u6", address, "address") for n, address in enumerate(order)], V4)
case(
    "of IPv6 alone and both, of one user",
    [(0, "alone", "u6", "::", SHARES + " v6only"), (0, "both", "u6", "::", SHARES)],
    V6,
)

case(
    "a group, and one of IPv6 that is in none",
    [(0, "member", "u4", "0.0.0.0", "address joins"), (1, "none", "u6", "::", "address")],
    GROUP,
    (V4, V6),
)
case(
    "a group, and one of IPv6 that is in it",
    [(0, "member", "u4", "0.0.0.0", "address joins"), (1, "other", "u6", "::", "address joins")],
    GROUP,
    (V4, V6),
)

# Who may have what beside another user's; the third one is his, too.
for kind in "ut":
    for first, last in itertools.product(("::", V6, MAPPED, "0.0.0.0"), ("::", V6, V4, "0.0.0.0")):
        for alone in itertools.product(("", " v6only"), repeat=2):
            if any(only and not address.startswith("::") or only and "." in address for only, address in zip(alone, (first, last))):
                continue
            for says in ("port", "port"), ("address", SHARES), (SHARES, "address"), (SHARES, SHARES):
                both = [
                    (n, str(n), kind + ("6" if ":" in address else "4"), address, say + only)
                    for n, (address, say, only) in enumerate(zip((first, last), says, alone))
                ]
                case(f"{kind} {first}{alone[0]} {last}{alone[1]} {says}", both)
                if kind == "t":
                    case(f"{kind} {first}{alone[0]} {last}{alone[1]} {says} both listen", both, listen=True)
                    (user, name, kinds, address, options), other = both
                    listening = [(user, name, kinds, address, options + " listens"), other]
                    case(f"{kind} {first}{alone[0]} listens {last}{alone[1]} {says}", listening)

for process in PROCESSES:
    process.stdin.close()
    assert process.wait() == 0
