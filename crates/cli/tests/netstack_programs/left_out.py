"""What programs find in their environment that are started with next to nothing in it: left_out.py HOST PORT

Each way of starting /usr/bin/env is gone twice: without a socket to inherit, and with a listening one. A line for each: its name, and the
names that the program found, or LD_PRELOAD as it was where that was given.
"""

import os
import socket
import subprocess
import sys

ENV = "/usr/bin/env"


def forked(environment, **_):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.execve(ENV, [ENV], environment)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as file:
        return file.read()


def spawned(environment, actions=(), **_):
    read, write = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, write, 1), *actions]
    child = os.posix_spawn(ENV, [ENV], environment, file_actions=actions)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as file:
        return file.read()


def borrowed(environment, stdin=None, **_):
    """By vfork, where there is one."""
    return subprocess.run([ENV], env=environment, close_fds=False, stdin=stdin, stdout=subprocess.PIPE, check=True).stdout.decode()


def says(name, text):
    found = dict(line.split("=", 1) for line in text.splitlines())
    preload = found.get("LD_PRELOAD", "").split(":")
    names = sorted(n for n in found if n.startswith("BYPATH_NETSTACK") or n == "LD_PRELOAD")
    print(name, *names, preload[0] if len(preload) > 1 else "", flush=True)


heard = socket.create_server((sys.argv[1], int(sys.argv[2])))
ways = {"forked": forked, "spawned": spawned, "borrowed": borrowed}
for name, way in ways.items():
    says(name + " nothing", way({}))
# It is close-on-exec, and becomes a descriptor that is not.
says("spawned dup2", spawned({}, actions=[(os.POSIX_SPAWN_DUP2, heard.fileno(), 9)]))
says("borrowed stdin", borrowed({}, stdin=heard))
heard.set_inheritable(True)
for name, way in ways.items():
    says(name + " socket", way({}))
    says(name + " others", way({"LD_PRELOAD": "libm.so.6", "BYPATH_NETSTACK": "other"}))
resident = lambda: int(open("/proc/self/statm").read().split()[0])
before = resident()
for _ in range(50):
    borrowed({})
    spawned({})
print("kept", resident() - before < 50, flush=True)
