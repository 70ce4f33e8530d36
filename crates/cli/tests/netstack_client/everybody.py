"""What is said to datagrams for everybody and for groups: everybody.py HOST"""

import errno
import socket
import sys


def told(call, *args):
    try:
        call(*args)
        return "done"
    except OSError as e:
        return errno.errorcode[e.errno]


for to in ("255.255.255.255", "10.9.0.255", "10.9.0.0", "224.0.0.5", "239.1.2.3"):
    for may in (0, 1):
        for bound in (None, sys.argv[1], "0.0.0.0"):
            row = []
            for connects in (False, True):
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, may)
                if bound is not None:
                    s.bind((bound, 0))
                row.append(told(s.connect, (to, 9)) if connects else told(s.sendto, b"x", (to, 9)))
            print(to, may, bound, *row)
