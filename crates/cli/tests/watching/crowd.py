"""crowd.py serve N | call N PORTS...: N UDP sockets in one epoll set at each end. The server prints its ports, and answers until it is told `end`; of `begin` it makes a mark that who traces it
sees.
The caller talks over each of its sockets, by turns, until both ends know each other; then over the first two, with a pause now and then
in which everybody goes to sleep. It prints how many datagrams it has sent."""
import os
import select
import socket
import sys
import time

count = int(sys.argv[2])
waits = select.epoll()
ends = []
for _ in range(count):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.bind(("127.0.0.1", 0))
    end.setblocking(False)
    waits.register(end, select.EPOLLIN)
    ends.append(end)
by_number = {end.fileno(): end for end in ends}
if sys.argv[1] == "serve":
    print(*(end.getsockname()[1] for end in ends), flush=True)
    while True:
        for number, _ in waits.poll():
            question, whose = by_number[number].recvfrom(100)
            by_number[number].sendto(question, whose)
            if question == b"begin":
                os.access("begins", 0)
            if question == b"end":
                sys.exit()
sent = 0


def talk(which, question=b"question"):
    global sent
    sent += 1
    ends[which].sendto(question, ("127.0.0.1", int(sys.argv[3 + which])))
    for number, _ in waits.poll():
        by_number[number].recv(100)


for _ in range(40):
    for which in range(count):
        talk(which)
talk(0, b"begin")
for round in range(1600):
    if round % 8 == 0:
        time.sleep(0.003)
    talk(round % 2)
talk(0, b"end")
print(sent)
