"""listens.py USER PROCESSES COUNT: becomes this user, listens on so many sockets (10000 at most) in each of so many processes, says on
standard error how many they are, and stays until its input ends."""
import os
import resource
import socket
import sys

user, processes, count = map(int, sys.argv[1:])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
os.setgroups([])
os.setgid(user)
os.setuid(user)


def listen(process):
    held = []
    for n in range(count):
        try:
            listener = socket.socket()
        except OSError:
            break
        # Ports that nobody is given by chance.
        listener.bind((f"127.1.0.{1 + process}", 20_000 + n))
        listener.listen(1)
        held.append(listener)
    return held


# Each waits for its own input, which ends as the first one's does.
told, tell = os.pipe()
for process in range(1, processes):
    if os.fork() == 0:
        held = listen(process)
        os.write(tell, len(held).to_bytes(4, "big"))
        os.read(0, 1)
        os._exit(0)
held = listen(0)
others = [int.from_bytes(os.read(told, 4), "big") for _ in range(1, processes)]
print(len(held) + sum(others), file=sys.stderr, flush=True)
os.read(0, 1)
