"""often.py USER COUNT PROCESSES: becomes this user, has its standard output open so many times more, in so many processes, says `ready` on
standard error, and stays until its input ends."""
import os
import sys

user, count, processes = map(int, sys.argv[1:])
os.setgroups([])
os.setgid(user)
os.setuid(user)
held = [os.dup(1) for _ in range(count)]
# Each waits for its own input, which ends as the first one's does.
for _ in range(processes - 1):
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
print("ready", file=sys.stderr, flush=True)
os.read(0, 1)
