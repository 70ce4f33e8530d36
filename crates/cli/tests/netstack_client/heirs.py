"""heirs.py HOST: connections that are on rings pass to children, other images and other processes, and nothing of them is lost or twice there.

A server of its own echoes; each part prints a line."""

import array
import os
import signal
import socket
import subprocess
import sys
import threading

# Whatever hangs ends.
signal.alarm(90)
heard = socket.create_server((sys.argv[1], 0), backlog=64)
PLAIN = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def echo(s):
    with s:
        try:
            while part := s.recv(65536):
                s.sendall(part)
        except ConnectionError:
            pass


def serve():
    while True:
        s, _ = heard.accept()
        threading.Thread(target=echo, args=(s,), daemon=True).start()


# The servers are another process: what the client forks has no threads.
servers = os.fork()
if servers == 0:
    serve()


def exactly(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            break
        got += part
    return got


def talk(s, start, n):
    for i in range(start, start + n):
        said = b"%07d," % i
        s.sendall(said)
        if exactly(s, len(said)) != said:
            return False
    return True


def connected():
    s = socket.create_connection(heard.getsockname())
    # By now both directions are on rings, where there are rings.
    assert talk(s, 0, 100)
    return s


def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# A child goes on with it, and then its parent.
s = connected()
child = os.fork()
if child == 0:
    os._exit(0 if talk(s, 100, 100) else 1)
print("fork", wait(child), talk(s, 200, 100))
s.close()

# The parent leaves it to the child.
s = connected()
child = os.fork()
if child == 0:
    heard.close()
    os._exit(0 if talk(s, 100, 300) else 1)
s.close()
print("left", wait(child))

# A child is killed in the middle.
s = connected()
r, w = os.pipe()
child = os.fork()
if child == 0:
    talk(s, 100, 50)
    os.write(w, b"x")
    signal.pause()
os.read(r, 1)
os.kill(child, signal.SIGKILL)
print("killed", wait(child), talk(s, 150, 100))
s.close()

# Images that know the library, and that do not.
COPY = "import os, sys\nwhile part := os.read(0, 5000): os.write(1, part)"
for name, environment in (("hooked", None), ("plain", PLAIN)):
    s = connected()
    said = bytes(range(256)) * 1000
    # Octets that wait in the ring and in the connection are the next image's to read.
    s.sendall(said[:3000])
    other = subprocess.Popen([sys.executable, "-c", COPY], stdin=s, stdout=subprocess.PIPE, env=environment)
    threading.Thread(target=lambda: (s.sendall(said[3000:]), s.shutdown(socket.SHUT_WR))).start()
    print("exec", name, other.communicate(timeout=30)[0] == said)
    s.close()

# Written by a plain program, in between.
s = connected()
for i in range(4):
    said = b"by echo %d" % i
    subprocess.run([sys.executable, "-c", f"import os; os.write(1, {said!r})"], stdout=s, env=PLAIN, check=True)
    assert exactly(s, len(said)) == said
print("writer", talk(s, 100, 50))
s.close()

# Passed to another process, which was there before, and goes on with it alone.
a, b = socket.socketpair()
child = os.fork()
if child == 0:
    a.close()
    _, files, _, _ = socket.recv_fds(b, 10, 1)
    s = socket.socket(fileno=files[0])
    good = exactly(s, 6) == b"unread" and talk(s, 100, 200)
    s.close()
    os._exit(0 if good else 1)
b.close()
s = connected()
s.sendall(b"unread")
socket.send_fds(a, [b"take"], [s.fileno()])
s.close()
print("passed", wait(child))

# dup2 over one, and two descriptors of one.
s = connected()
t = s.dup()
good = talk(t, 100, 50)
s.close()
print("dup", good, talk(t, 150, 50))
other = connected()
os.dup2(other.fileno(), t.fileno())
print("dup2", talk(t, 100, 50), talk(other, 150, 50))
t.close()
other.close()

# What was written before a close arrives; what was not read makes it a reset, which harms nobody else.
s = connected()
s.sendall(bytes(60000))
s.close()
s = connected()
print("end", talk(s, 100, 50))
s.shutdown(socket.SHUT_WR)
print("eof", s.recv(10))
os.kill(servers, signal.SIGKILL)
