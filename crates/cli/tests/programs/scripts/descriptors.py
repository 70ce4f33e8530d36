"""descriptors.py before|after PORT: what a program sees of its descriptors and their limit, taking every number
it can get before or after traffic with an echo server. Prints one line that must not depend on who watches."""
import errno
import os
import resource
import sys

from ping import connect, ping


def take_all():
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as e:
            assert e.errno == errno.EMFILE, e
            return taken


when, port = sys.argv[1], int(sys.argv[2])
connection = connect(port)
payload = 0
if when == "after":
    payload = ping(connection, 3000)
taken = take_all()
if when == "before":
    payload = ping(connection, 3000)
print("seen", resource.getrlimit(resource.RLIMIT_NOFILE), connection.fileno(), taken)
print("payload", payload)
