"""What every option answers, one line of JSON for each that somebody knows: the same with kernel sockets and with a service's.

walk.py streams|datagrams ADDRESS4 ADDRESS6: of this host, or the service's. For sockets of AF_INET and AF_INET6 that are bound, connected, and
listening (streams alone), each (level, option) is asked for with rooms of several sizes, and set to values of several sizes; after each it is asked for
again. On new sockets each value is set before bind, and asked for after it.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
SIZES = (0, 1, 2, 4, 8, 64)
TEXTS = [b"reno\0", b"nobody\0", b"mine\0"]
VALUES = (
    [b"", b"\1", b"\1\0"]
    + [struct.pack("=i", n) for n in (1, 0, 2, 30, 1000, -1, 256, 2**31 - 1, -(2**31))]
    + [struct.pack("=ii", 1, 7), struct.pack("=ii", 0, 0), struct.pack("=qq", 1, 0), bytes(64)]
    + TEXTS
)
FEW = [struct.pack("=i", n) for n in (1, 30, 1000, -1)] + [struct.pack("=qq", 1, 0)]
KIND, PROTOCOL = (socket.SOCK_STREAM, 6) if sys.argv[1] == "streams" else (socket.SOCK_DGRAM, 17)
LEVELS = {0: 256, 1: 256, PROTOCOL: 256, 41: 256}
# One option of each other level, and options far above.
OTHERS = [(level, 1) for level in (2, 23 - PROTOCOL, 58, 132, 255, 256, 263, 282, 284, 286, 9999, -1)]
OTHERS += [(level, name) for level in LEVELS for name in (256, 1000, 65536, 2**31 - 1, -1)]
# IPV6_ADDRFORM makes another socket of it. The others are the tables of packet filters, which modules of the kernel have.
NOT = {(41, 1)} | {(level, n) for level in (0, 41) for n in (64, 65)} | {(0, n) for n in (66, 67, 83, 96, 97, 98, 99)} | {(41, 68), (41, 69)}


def name(e):
    if e == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"
    return errno.errorcode.get(e, str(e))


def get(fd, level, option, size=64):
    room = (ctypes.c_char * 256)(*([b"\xaa"] * 256))
    length = ctypes.c_uint32(size)
    if libc.getsockopt(fd, level, option, room, ctypes.byref(length)) < 0:
        return name(ctypes.get_errno())
    return room.raw[: length.value].hex() if length.value <= size else f"{length.value} octets"


def set_(fd, level, option, value):
    room = ctypes.create_string_buffer(value, len(value) + 64)
    if libc.setsockopt(fd, level, option, room, len(value)) < 0:
        return name(ctypes.get_errno())
    return "set"


def new(at):
    return [socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET, KIND)]


def bound(at):
    (s,) = new(at)
    s.bind((at, 0))
    return [s]


def listening(at):
    (s,) = bound(at)
    s.listen(8)
    return [s]


def connected(at):
    if KIND == socket.SOCK_DGRAM:
        [other], [s] = bound(at), new(at)
        s.connect(other.getsockname())
        return [s, other]
    (heard,) = listening(at)
    (s,) = new(at)
    s.connect(heard.getsockname())
    other, _ = heard.accept()
    return [s, other, heard]


def known(fd, level, option):
    answers = [get(fd, level, option), set_(fd, level, option, struct.pack("=i", 1)), set_(fd, level, option, bytes(64))]
    return any(answer not in ("ENOPROTOOPT", "EOPNOTSUPP") for answer in answers)


def close(sockets):
    for s in sockets:
        s.close()


def early(at, level, option, value):
    (s,) = new(at)
    answer = set_(s.fileno(), level, option, value)
    try:
        s.bind((at, 0))
    except OSError as e:
        answer += " " + name(e.errno)
    told = get(s.fileno(), level, option)
    s.close()
    return answer, told


def walk(at, state, level, option):
    if state is new:
        return {}, [[value.hex(), *early(at, level, option, value)] for value in FEW]
    sockets = state(at)
    fd = sockets[0].fileno()
    told = {size: get(fd, level, option, size) for size in SIZES}
    done = []
    for value in VALUES:
        answer = set_(fd, level, option, value)
        done.append([value.hex(), answer, get(fd, level, option)])
    close(sockets)
    return told, done


def main():
    states = (new, bound, connected) + ((listening,) if KIND == socket.SOCK_STREAM else ())
    for family, at in ((4, sys.argv[2]), (6, sys.argv[3])):
        for state in states:
            probe = state(at)
            for level, option in [(l, o) for l, most in LEVELS.items() for o in range(most)] + OTHERS:
                if (level, option) in NOT:
                    continue
                if known(probe[0].fileno(), level, option):
                    told, done = walk(at, state, level, option)
                    line = dict(family=family, state=state.__name__, level=level, option=option, told=told, set=done)
                    print(json.dumps(line), flush=True)
                    close(probe)
                    probe = state(at)
            close(probe)


main()
