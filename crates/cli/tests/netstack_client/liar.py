"""A service that does not keep to the protocol: liar.py FOLDER NAME LIE."""

import os
import socket
import struct
import sys

HEADER = struct.Struct("=IIQiI")
FOLDER, NAME, LIE = sys.argv[1:4]
HELLO, OPEN, BIND, LISTEN, QUERY = 1, 2, 3, 4, 11
kept = []


def pair():
    end, program = socket.socketpair()
    cookie = struct.unpack("=Q", program.getsockopt(socket.SOL_SOCKET, 57, 8))[0]
    end.bind(b"\0bypath/netstack/%s/%016x/%s" % (NAME.encode(), cookie, os.urandom(8).hex().encode()))
    kept.append(end)
    return end, program, cookie


def greet(peer, serial):
    version = 2 if LIE == "hello" else 1
    name = b"other" if LIE == "name" else NAME.encode()
    peer.send(HEADER.pack(HELLO, serial, 0, 0, 0) + struct.pack("=II", version, os.getpid()) + name)


def serve(peer):
    served = None
    while True:
        message = peer.recv(4096)
        if not message:
            return
        op, serial, cookie, _, _ = HEADER.unpack(message[: HEADER.size])
        if op == HELLO:
            greet(peer, serial)
        elif op == QUERY:
            # To be found at all.
            peer.send(HEADER.pack(op, serial, 0, 0, 0))
        elif LIE == "nonsense":
            peer.send(b"nonsense")
        elif LIE == "hang up":
            return
        elif LIE == "serial":
            for n in range(100):
                peer.send(HEADER.pack(op, serial + 1 + n, 0, 0, 0))
            return
        elif LIE == "errno":
            peer.send(HEADER.pack(op, serial, 0, 70000, 0))
        elif LIE == "no descriptor":
            peer.send(HEADER.pack(op, serial, 7, 0, 0))
        elif LIE == "another cookie":
            _, program, cookie = pair()
            socket.send_fds(peer, [HEADER.pack(op, serial, cookie + 1, 0, 0)], [program.fileno()])
        elif LIE == "a file":
            file = os.open("/dev/null", os.O_RDWR)
            socket.send_fds(peer, [HEADER.pack(op, serial, 7, 0, 0)], [file])
            os.close(file)
        elif LIE == "four descriptors":
            file = os.open("/dev/null", os.O_RDWR)
            socket.send_fds(peer, [HEADER.pack(op, serial, 7, 0, 0)], [file] * 4)
            os.close(file)
        elif op == OPEN:
            end, program, cookie = pair()
            served = end
            socket.send_fds(peer, [HEADER.pack(op, serial, cookie, 0, 0)], [program.fileno()])
            program.close()
        elif op == LISTEN:
            peer.send(HEADER.pack(op, serial, cookie, 0, 0))
            tell(served)
        else:
            peer.send(HEADER.pack(op, serial, cookie, 0, 0) + bytes(68))


def tell(end):
    """Records, each of which is another lie."""
    _, other, cookie = pair()
    record = b"BYPACPT1" + struct.pack("=Q", cookie) + bytes(64)
    null = os.open("/dev/null", os.O_RDWR)
    # Octets that are no record, with a descriptor; a record without; one with a file; one with another socket.
    socket.send_fds(end, [b"BYPACPT2" + record[8:]], [other.fileno()])
    end.send(record)
    socket.send_fds(end, [record], [null])
    _, another, _ = pair()
    socket.send_fds(end, [record], [another.fileno()])
    end.shutdown(socket.SHUT_WR)


def main():
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{FOLDER}/{NAME}")
    listener.listen(64)
    print("ready", flush=True)
    while True:
        peer, _ = listener.accept()
        try:
            serve(peer)
        except OSError:
            pass
        peer.close()


main()
