"""begins.py USER MAPPINGS [pair]: as that user, maps 256 MiB of memory so many times, says `ready` on standard error, and at each line of its input
does something: with `pair` it sends some octets over a connection to itself; at a line `listen NAME` it listens at that abstract name; at the line `begin` it executes `sleep`, and has its
name when the kernel has freed those mappings."""
import mmap
import os
import socket
import sys

SIZE = 256 << 20
user = int(sys.argv[1])
if os.geteuid() != user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
if sys.argv[3:] == ["pair"]:
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
memory = os.memfd_create("much")
os.ftruncate(memory, SIZE)
mappings = [mmap.mmap(memory, SIZE, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE) for _ in range(int(sys.argv[2]))]
print("ready", file=sys.stderr, flush=True)
for line in sys.stdin:
    if line == "begin\n":
        os.execvp("sleep", ["sleep", "1000"])
    if line.startswith("listen "):
        named = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        named.bind("\0" + line.split()[1])
        named.listen()
        named.set_inheritable(True)
    else:
        near.sendall(b"MINE")
        far.recv(4)
    print("did", file=sys.stderr, flush=True)
