"""recycled.py ENDS: a process has a connection while a child of its says in what the two share, at octet ENDS, that the place of this
connection is nobody's. It then makes another one, to somebody else, and says on the first one what is for the first one alone."""
import ctypes
import os
import re
import socket
import subprocess
import sys

RECORD, HOLDERS, USED = 512, 16, 8

# Who listens answers with his own mark before what came.
SERVER = """
import socket, threading
def echo(s, mark):
    while octets := s.recv(65536):
        s.sendall(mark + octets)
def serve(listener, mark):
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0], mark), daemon=True).start()
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
for listener, mark in zip(listeners, (b"1", b"2")):
    threading.Thread(target=serve, args=(listener, mark), daemon=True).start()
print(*(listener.getsockname()[1] for listener in listeners), flush=True)
input()
"""


def region():
    with open("/proc/self/maps") as maps:
        return int(next(re.match("[0-9a-f]+", line)[0] for line in maps if "bypath-view" in line), 16)


def line(port, turns):
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(5)
    for _ in range(turns):
        s.sendall(b"ping")
        assert s.recv(100)[1:] == b"ping"
    return s


def lie(fd, ends):
    """Its child: there is one socket only that was opened with this descriptor."""
    at = region()
    for number in range(64):
        end = at + ends + RECORD * number
        state, _, opened = (int.from_bytes(ctypes.string_at(end + 4 * n, 4), "little") for n in range(3))
        if state != 0 and opened == fd:
            ctypes.memset(end, 0, 4)
            ctypes.memset(end + HOLDERS, 0, 8)
            ctypes.memmove(at + USED, number.to_bytes(4, "little"), 4)
            os._exit(0)
    os._exit(1)


def main():
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    one, other = map(int, server.stdout.readline().split())
    first = line(one, 3)
    if (child := os.fork()) == 0:
        lie(first.fileno(), int(sys.argv[1]))
    print("lied", int(os.waitpid(child, 0)[1] == 0))
    second = line(other, 100)
    first.settimeout(1)
    try:
        first.sendall(b"for the first one alone")
        print("answered", first.recv(100).decode())
    except OSError as error:
        print("answered", error)
    second.sendall(b"x")
    print("then", second.recv(100).decode())
    server.stdin.close()
    server.wait()


main()
