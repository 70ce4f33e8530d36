"""fair.py flood | PORT ROOM: who is called sends without a pause over that connection, and 1000 datagrams a second to the port that it is told; who calls waits for
both in one epoll set, told of ROOM events at a time, and takes little at each. Says how many datagrams came since there were octets, and how often there were."""
import select
import socket
import sys
import threading
import time

SECONDS = 3
QUIET = 1


def flood():
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=serve, args=(stream,), daemon=True).start()


def serve(stream):
    port = int(stream.recv(5))
    threading.Thread(target=send_datagrams, args=(port,), daemon=True).start()
    # At first there are datagrams alone, which come by memory soon.
    time.sleep(QUIET)
    try:
        while True:
            stream.sendall(b"x" * 4096)
    except OSError:
        pass


def send_datagrams(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        s.sendto(b"datagram", ("127.0.0.1", port))
        time.sleep(0.001)


def hear(port, room):
    stream = socket.create_connection(("127.0.0.1", port))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    datagrams.setblocking(False)
    both = select.epoll()
    both.register(stream, select.EPOLLIN)
    both.register(datagrams, select.EPOLLIN)
    stream.sendall(b"%05d" % datagrams.getsockname()[1])
    came, octets, end = 0, 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        for fd, _ in both.poll(1, room):
            if fd == stream.fileno():
                stream.recv(64)
                octets += 1
            else:
                try:
                    while datagrams.recv(100):
                        came += octets > 0
                except BlockingIOError:
                    pass
    print("datagrams", came)
    print("octets", octets, flush=True)


flood() if sys.argv[1] == "flood" else hear(int(sys.argv[1]), int(sys.argv[2]))
