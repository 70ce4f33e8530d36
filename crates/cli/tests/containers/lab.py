"""Containers: processes in network, pid, mount, IPC and UTS namespaces of their own, with a /proc of their own, and networks between them. A server is in one of them and
a client in another. Prints, in one line of JSON, what the client says, the reasons for which a villain was declined, and what commands said that looked on.

lab.py BYPATH LIBRARY FOLDER REQUEST"""
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys

BYPATH, LIBRARY, FOLDER = sys.argv[1:4]
request = json.loads(sys.argv[4])
HERE = os.path.dirname(os.path.abspath(__file__))
libc = ctypes.CDLL(None, use_errno=True)
# /proc is mounted in a copy of the tree, never over the one of this machine.
BEGIN = """mount --rbind / "$1" && mount -t proc proc "$1/proc" && exec chroot "$1" sh -c 'echo ready; exec sleep 1000'"""
# One that other users may execute, if there is one.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
# Where a connection must be the same in two networks, or somebody else must know it.
CLIENT_PORT, SERVER_PORT = 5000, 6000


def with_us():
    """A child ends when this process does, however that is: PR_SET_PDEATHSIG."""
    libc.prctl(1, signal.SIGKILL)


def run(*words):
    subprocess.run(words, check=True)


class Container:
    def __init__(self, name, shares_network=None):
        own_user = request["own_users"]
        self.name = name
        root = os.path.join(FOLDER, "root-" + name)
        os.mkdir(root)
        words = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        words += [] if shares_network else ["--net"]
        words += ["--user", "--map-root-user"] if own_user else []
        before = shares_network.enter(["--net"]) if shares_network else []
        self.unshare = subprocess.Popen(before + words + ["sh", "-c", BEGIN, "sh", root], stdout=subprocess.PIPE, preexec_fn=with_us)
        assert self.unshare.stdout.readline() == b"ready\n", "no container"
        parent = self.unshare.pid
        with open(f"/proc/{parent}/task/{parent}/children") as children:
            self.pid = children.read().split()[0]
        self.user = ["--user", "--preserve-credentials"] if own_user else []

    def enter(self, kinds=("--mount", "--pid", "--net", "--root", "--wd")):
        return ["nsenter", "--target", self.pid, *kinds, *self.user, "--"]

    def ip(self, *words):
        run(*self.enter(["--net"]), "ip", *words)

    def python(self, before, *words):
        command = self.enter() + before + [PYTHON, *words]
        with open(os.path.join(FOLDER, self.name + ".log"), "a") as log:
            environment = {**os.environ, "BYPATH_CONFIG": "none"}
            pipe = subprocess.PIPE
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, preexec_fn=with_us, env=environment)

    def talk(self, side, *words):
        """As the side says."""
        uid = side["uid"]
        before = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"] if uid else []
        if not side["plain"]:
            options = [f"--{name}={value}" for name, value in side["options"].items()]
            stats = os.path.join(FOLDER, self.name + ".stats")
            before += [BYPATH, "run", "--library", LIBRARY, "--log", "debug", "--stats", stats, *options, "--"]
        return self.python(before, os.path.join(HERE, "talk.py"), *words)


def wire(container, network, subnet, host):
    """An interface of the container at that bridge of this namespace."""
    port = f"{network}{host}"
    run("ip", "link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "netns", container.pid)
    run("ip", "link", "set", port, "master", network, "up")
    container.ip("link", "set", "lo", "up")
    container.ip("addr", "add", f"10.{subnet}.0.{host}/24", "dev", "eth0")
    container.ip("addr", "add", f"fd{subnet:02}::{host}/64", "dev", "eth0", "nodad")
    container.ip("link", "set", "eth0", "up")


def bridge(network, router=None):
    run("ip", "link", "add", "name", network, "type", "bridge")
    run("ip", "link", "set", network, "up")
    if router:
        run("ip", "addr", "add", router, "dev", network)


def two_containers():
    """On one bridge."""
    client, server = Container("client"), Container("server")
    bridge("lan")
    wire(client, "lan", 7, 1)
    wire(server, "lan", 7, 2)
    return client, server


def pod():
    server = Container("server")
    server.ip("link", "set", "lo", "up")
    return Container("client", shares_network=server), server


def routed():
    """Two bridges, and this namespace between them."""
    client, server = Container("client"), Container("server")
    bridge("left", "10.7.0.254/24")
    bridge("right", "10.8.0.254/24")
    wire(client, "left", 7, 1)
    wire(server, "right", 8, 2)
    client.ip("route", "add", "default", "via", "10.7.0.254")
    server.ip("route", "add", "default", "via", "10.8.0.254")
    with open("/proc/sys/net/ipv4/ip_forward", "w") as switch:
        switch.write("1")
    return client, server


def attribute(kind, value):
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def masquerade():
    """What `nft add rule ip nat postrouting masquerade` does, by nfnetlink (linux/netfilter/nf_tables.h)."""
    NESTED, ACK, REQUEST, CREATE, TABLES = 0x8000, 4, 1, 0x400, 10
    name = lambda kind, text: attribute(kind, text.encode() + b"\0")
    hook = attribute(4 | NESTED, attribute(1, struct.pack(">I", 4)) + attribute(2, struct.pack(">I", 100)))
    expression = attribute(1 | NESTED, name(1, "masq"))
    parts = [
        (16, 0, 0, TABLES),
        (TABLES << 8 | 0, CREATE | ACK, name(1, "nat"), 0),
        (TABLES << 8 | 3, CREATE | ACK, name(1, "nat") + name(3, "post") + hook + name(7, "nat"), 0),
        (TABLES << 8 | 6, CREATE | ACK, name(1, "nat") + name(2, "post") + attribute(4 | NESTED, expression), 0),
        (17, 0, 0, TABLES),
    ]
    batch = b""
    for number, (kind, flags, body, resource) in enumerate(parts):
        family = 0 if kind < 32 else socket.AF_INET
        body = struct.pack(">BBH", family, 0, resource) + (body or b"")
        batch += struct.pack("IHHII", 16 + len(body), kind, REQUEST | flags, number, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as tables:
        tables.settimeout(10)
        tables.send(batch)
        answers = b""
        while len(answers) < 3 * 36:
            answers += tables.recv(65536)
        errors = [struct.unpack_from("i", answers, at + 16)[0] for at in range(0, 3 * 36, 36)]
        assert errors == [0, 0, 0], f"no translation: {errors}"


def translated():
    both = routed()
    masquerade()
    return both


def ping(client, address, port, local=0, verb="ping"):
    words = [verb, address, port, request["rounds"], request["streams"], local]
    return client.talk(request["client"], *map(str, words))


def finish(talking):
    said = [line.split() for line in talking.communicate()[0].splitlines()]
    assert talking.returncode == 0, "the client failed"
    return said


def serve(server, side, *words):
    serving = server.talk(side, "serve", *map(str, words))
    line = serving.stdout.readline().split()
    assert line[:1] == ["port"], "no server"
    return line[1]


def twins():
    """Twice the same network, with the same connection in it; of each one end is plain."""
    request["rounds"] *= 2
    plain = {"plain": True, "uid": None, "options": {}}
    talking = []
    for network, sides in [("first", (request["client"], plain)), ("second", (plain, request["server"]))]:
        names = ["client", "plain-server"] if network == "first" else ["plain-client", "server"]
        client, server = map(Container, names)
        bridge(network)
        wire(client, network, 7, 1)
        wire(server, network, 7, 2)
        serve(server, sides[1], "10.7.0.2", SERVER_PORT)
        talking.append((client, sides[0]))
    words = ["ping", "10.7.0.2", SERVER_PORT, request["rounds"], 1, CLIENT_PORT]
    both = [client.talk(side, *map(str, words)) for client, side in talking]
    said = [finish(one) for one in both]
    return {"said": said[0] + said[1], "villain": []}


def look(before, *words):
    """What a command says: its exit status, and its JSON or its words."""
    environment = {**os.environ, "BYPATH_CONFIG": "none"}
    done = subprocess.run([*before, BYPATH, *map(str, words)], capture_output=True, text=True, env=environment)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = done.stdout
    return {"status": done.returncode, "said": said, "errors": done.stderr}


def program_of(nsenter):
    """The process that the command has become in the container: its number here, and there."""
    with open(f"/proc/{nsenter.pid}/task/{nsenter.pid}/children") as children:
        here = children.read().split()[0]
    with open(f"/proc/{here}/status") as status:
        there = next(line for line in status if line.startswith("NSpid:")).split()[-1]
    return here, there


def watched(client, server, address, port):
    """Half of the talk; commands of here, and of the client's container; the other half."""
    talking = ping(client, address, port, verb="hold")
    assert talking.stdout.readline() == "half\n", "no first half"
    here, there = program_of(talking)
    inside = client.enter()
    commands = {"ss": ["ss", "--json"], "why": ["why", "PID"], "top": ["top", "--once", "--json"],
                "recall": ["recall", "PID", "--json"], "after": ["ss", "--json"]}
    if request["deed"] == "watched inside":
        before, number = inside, there
    else:
        before, number = [], here
    report = {name: look(before, *(number if w == "PID" else w for w in words)) for name, words in commands.items()}
    # Of a number that is nobody's there.
    report["stranger"] = look(inside, "recall", 4000000)
    report["client"] = int(number)
    talking.stdin.write("\n")
    talking.stdin.flush()
    return {"said": finish(talking), "villain": [], "watched": report}


def main():
    if request["layout"] == "twins":
        return twins()
    layouts = {"bridge": two_containers, "pod": pod, "routed": routed, "translated": translated}
    client, server = layouts[request["layout"]]()
    address, villain = request["address"], request["villain"]
    is_watched = request["deed"].startswith("watched")
    deed = [request["deed"], request["rounds"] // 3] if request["deed"] and not is_watched else []
    port = serve(server, request["server"], address, SERVER_PORT if villain else 0, *deed)
    if is_watched:
        return watched(client, server, address, port)
    if villain == "opens the folder":
        os.chmod(request["folder"], 0o777)
    elif villain:
        words = [villain, request["folder"], "10.7.0.1", CLIENT_PORT, address, SERVER_PORT]
        harm = client.python([], os.path.join(HERE, "villain.py"), *map(str, words))
        assert harm.stdout.readline() == "ready\n", "no villain"
    said = finish(ping(client, address, port, CLIENT_PORT if villain else 0))
    declined = []
    if villain and villain != "opens the folder":
        # With its container: nsenter alone would leave its child behind.
        client.unshare.kill()
        declined = harm.communicate()[0].split()
    return {"said": said, "villain": declined}


print(json.dumps(main()))
