"""A service that does not keep to the protocol: liar.py FOLDER NAME LIE."""

import fcntl
import os
import socket
import struct
import sys
import threading

HEADER = struct.Struct("=IIQiI")
FOLDER, NAME, LIE = sys.argv[1:4]
HELLO, OPEN, BIND, LISTEN, ERROR, QUERY = 1, 2, 3, 4, 9, 11
# How long the last close of what lingers waits, in seconds.
LINGER = 40
# A record that says there is an error, and there is none.
NO_ERROR = b"BYPADGR1" + struct.pack("=I", 2) + bytes(100)
kept = []


def pair(kind=socket.SOCK_STREAM):
    end, program = socket.socketpair(socket.AF_UNIX, kind)
    cookie = struct.unpack("=Q", program.getsockopt(socket.SOL_SOCKET, 57, 8))[0]
    end.bind(b"\0bypath/netstack/%s/%016x/%s" % (NAME.encode(), cookie, os.urandom(8).hex().encode()))
    kept.append(end)
    return end, program, cookie


def lingering():
    """A connection with octets that nobody takes, which only who is sent it has, and its cookie."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    kept.append((listener, listener.accept()))
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        pass
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
    return sender, struct.unpack("=Q", sender.getsockopt(socket.SOL_SOCKET, 57, 8))[0]


def send_lingering(to, octets, sender):
    socket.send_fds(to, [octets], [sender.fileno()])
    # Who is quick has closed his by now, and this close is the last one.
    threading.Thread(target=sender.close, daemon=True).start()


def greet(peer, serial):
    version = 2 if LIE == "hello" else 1
    name = b"other" if LIE == "name" else NAME.encode()
    answer = HEADER.pack(HELLO, serial, 0, 0, 0) + struct.pack("=II", version, os.getpid()) + name
    if LIE == "lingers":
        send_lingering(peer, answer, lingering()[0])
    else:
        peer.send(answer)


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
            is_stream = struct.unpack_from("=i", message, HEADER.size + 4)[0] & 15 == socket.SOCK_STREAM
            end, program, cookie = pair(socket.SOCK_STREAM if is_stream else socket.SOCK_SEQPACKET)
            served = end
            if LIE == "errors" and not is_stream:
                end.send(NO_ERROR)
            socket.send_fds(peer, [HEADER.pack(op, serial, cookie, 0, 0)], [program.fileno()])
            program.close()
        elif op == LISTEN:
            peer.send(HEADER.pack(op, serial, cookie, 0, 0))
            tell_lingering(served) if LIE == "lingers" else tell(served)
        elif op == ERROR and LIE == "errors":
            served.send(NO_ERROR)
            peer.send(HEADER.pack(op, serial, cookie, 0, 0) + bytes(4))
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


def tell_lingering(end):
    """A connection of nobody, which lingers."""
    sender, cookie = lingering()
    send_lingering(end, b"BYPACPT1" + struct.pack("=Q", cookie) + bytes(64), sender)


def lift():
    """Loopback, where it is of a namespace of its own."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(probe, 0x8914, struct.pack("=16sh", b"lo", 1 | 64).ljust(40, b"\0"))


def main():
    if LIE == "lingers":
        lift()
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
