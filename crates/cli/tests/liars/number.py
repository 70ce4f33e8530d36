"""number.py BYPATH: has `dump` follow a process, which ends while `dump` is stopped, and whose number another user's process has then. In a pid namespace of
its own. Prints what `dump` says."""
import os
import signal
import subprocess
import sys

bypath = sys.argv[1]
program = "import socket, sys\ns = socket.create_server(('127.0.0.1', 0))\nprint('ready', flush=True)\nsys.stdin.read()"
victim = subprocess.Popen([bypath, "run", "--", "python3", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert victim.stdout.readline() == b"ready\n"
dump = subprocess.Popen([bypath, "dump", "--pid", str(victim.pid), "-w", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
# The head of the file is there: it has begun.
assert dump.stdout.read(4)
dump.send_signal(signal.SIGSTOP)
victim.kill()
victim.wait()
with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(victim.pid - 1))
successor = subprocess.Popen(["sleep", "1000"], user=12345)
assert successor.pid == victim.pid, (successor.pid, victim.pid)
dump.send_signal(signal.SIGCONT)
_, said = dump.communicate(timeout=20)
print(said.decode())
assert dump.returncode == 0, dump.returncode
assert successor.poll() is None
successor.kill()
