"""An echo request by a ping socket that is bound first: ping_bound.py HOST"""

import socket
import sys

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
s.settimeout(30)
s.bind(("", 0))
s.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 1]) + b"octets", (sys.argv[1], 0))
octets, (name, _) = s.recvfrom(99)
assert octets.endswith(b"octets")
print(octets[0], name)
