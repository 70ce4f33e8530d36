"""Two hosts with an echo server of UDP on the second one, at port 7.

lab.py kernel PROGRAM...: runs it on the first one, both being namespaces of the kernel's. lab.py service FOLDER BYPATH [PROGRAM...]: the first one is a netstack service, `lab` in
FOLDER, until the input ends; PROGRAM runs on the second one. The first one is 10.9.0.1, the second one 10.9.0.9."""

import ctypes
import os
import socket
import subprocess
import sys
import threading

HERE, THERE = "10.9.0.1", "10.9.0.9"
libc = ctypes.CDLL(None, use_errno=True)


def with_us():
    """A child ends when this process does, however that is: PR_SET_PDEATHSIG."""
    libc.prctl(1, 15)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def echo():
    # Each datagram that nobody takes is answered.
    with open("/proc/sys/net/ipv4/icmp_ratemask", "w") as mask:
        mask.write("0")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((THERE, 7))

    def serve():
        while True:
            octets, name = s.recvfrom(70000)
            s.sendto(octets, name)

    threading.Thread(target=serve, daemon=True).start()


def kernel(program):
    ip("link", "set", "lo", "up")
    ready, go = os.pipe()
    asks, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        if libc.unshare(0x40000000) != 0:
            os._exit(1)
        os.write(tells, b"x")
        os.read(ready, 1)
        ip("link", "set", "lo", "up")
        ip("addr", "add", THERE + "/24", "dev", "far")
        ip("link", "set", "far", "up")
        echo()
        os.write(tells, b"x")
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    os.read(asks, 1)
    ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(child))
    ip("addr", "add", HERE + "/24", "broadcast", "10.9.0.255", "dev", "near")
    ip("link", "set", "near", "up")
    os.write(go, b"x")
    os.read(asks, 1)
    status = subprocess.run(program).returncode
    os.close(go)
    os.waitpid(child, 0)
    sys.exit(status)


def service(folder, bypath, *program):
    words = [bypath, "netstack", "--name", "lab", "--link", "tap:bp0", "--net", THERE + "/24", "--addr", HERE + "/24"]
    words += os.environ.get("LAB_SETTINGS", "").split()
    ip("link", "set", "lo", "up")
    process = subprocess.Popen(words, preexec_fn=with_us, stdout=subprocess.PIPE, env={**os.environ, "BYPATH_NETSTACK_DIR": folder}, text=True)
    line = process.stdout.readline()
    if not line.startswith("service "):
        sys.exit("bypath netstack: " + line)
    echo()
    other = subprocess.Popen(program, preexec_fn=with_us, stdout=subprocess.PIPE) if program else None
    if other:
        # It says something when it is ready.
        other.stdout.readline()
    print("ready", flush=True)
    sys.stdin.read()
    if other:
        other.terminate()
    process.terminate()
    process.wait()


if sys.argv[1] == "kernel":
    kernel(sys.argv[2:])
else:
    service(*sys.argv[2:])
