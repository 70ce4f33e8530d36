"""dns.py PORT COUNT: asks a name server so many times by one socket for lab.example, whose address is 192.0.2.7, and for names
that are not there; prints the answers."""
import socket
import struct
import sys

port, count = map(int, sys.argv[1:3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(30)
s.connect(("127.0.0.1", port))
for number in range(count):
    there = number % 4 != 3
    labels = [b"lab" if there else b"no%d" % number, b"example"]
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    s.send(struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + name + struct.pack("!HH", 1, 1))
    answer = s.recv(4096)
    told, flags, questions, answers = struct.unpack_from("!HHHH", answer)
    assert told == number and flags & 0x8000 and questions == 1, (number, told, hex(flags))
    if there:
        assert answers == 1 and answer.endswith(bytes([0, 4, 192, 0, 2, 7])), answer
    else:
        assert answers == 0 and flags & 15 == 3, (answers, hex(flags))
print("answers", count)
