"""What inetd starts for a socket of datagrams, descriptor 0: it answers some, and ends; and who asks it."""
import os
import socket
import sys

ROUNDS, EACH = 3, 50

if sys.argv[1] == "server":
    s = socket.socket(fileno=0)
    for _ in range(EACH):
        octets, source = s.recvfrom(2000)
        s.sendto(b"%d %s" % (os.getpid(), octets), source)
else:
    answers, servers = 0, set()
    c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    c.settimeout(60)
    c.connect(("127.0.0.1", int(sys.argv[2])))
    for n in range(ROUNDS * EACH):
        c.send(b"%d" % n)
        pid, octets = c.recv(2000).split(b" ")
        assert octets == b"%d" % n, octets
        answers += 1
        servers.add(pid)
    print("answers", answers)
    print("servers", len(servers))
