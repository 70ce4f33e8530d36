"""udp_echo.py server STYLE: echoes datagrams, prints its port. udp_echo.py client STYLE PORT WINDOW: sends datagrams of many
sizes, WINDOW of them at once, and checks what comes back, in order; prints the octets moved.
Styles: plain (blocking calls), spinning (calls that do not wait, again and again), selectors, asyncio, threads (one for each datagram),
group (three threads, each with a socket of its own at the port, which spin),
forking (as spinning, after it has had children)."""
import asyncio
import os
import random
import selectors
import socket
import socketserver
import subprocess
import sys
import threading
import time

ROUNDS, SIZES, PATIENCE = 150, (0, 1, 14, 14, 64, 64, 512, 1400, 9000), 30


def bound():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    print("port", s.getsockname()[1], flush=True)
    return s


def serve_plain():
    s = bound()
    while True:
        s.sendto(*s.recvfrom(65536))


def spin(call, patience):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            return call()
        except BlockingIOError:
            os.sched_yield()
    raise TimeoutError


def serve_spinning():
    s = bound()
    s.setblocking(False)
    echo_spinning(s)


def serve_forking():
    s = bound()
    for start in (lambda: os.execlp("true", "true"), lambda: os._exit(0)):
        child = os.fork()
        if child == 0:
            start()
        os.waitpid(child, 0)
    subprocess.run(["true"], check=True)
    s.setblocking(False)
    echo_spinning(s)


def echo_spinning(s):
    while True:
        s.sendto(*spin(lambda: s.recvfrom(65536), 10 * PATIENCE))


def serve_group():
    port, members = 0, []
    for _ in range(3):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(("127.0.0.1", port))
        s.setblocking(False)
        port = s.getsockname()[1]
        members.append(threading.Thread(target=echo_spinning, args=(s,)))
    for one in members:
        one.start()
    print("port", port, flush=True)


def serve_selectors():
    s = bound()
    s.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(s, selectors.EVENT_READ)
        while True:
            selector.select()
            try:
                while True:
                    s.sendto(*s.recvfrom(65536))
            except BlockingIOError:
                pass


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
        print("port", transport.get_extra_info("sockname")[1], flush=True)

    def datagram_received(self, data, address):
        self.transport.sendto(data, address)


async def serve_asyncio():
    await asyncio.get_running_loop().create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    await asyncio.Event().wait()


class Threaded(socketserver.BaseRequestHandler):
    def handle(self):
        data, s = self.request
        s.sendto(data, self.client_address)


def serve_threads():
    socketserver.ThreadingUDPServer.max_packet_size = 65536
    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Threaded) as server:
        print("port", server.server_address[1], flush=True)
        server.serve_forever()


def batches(window):
    rng = random.Random(7)
    for _ in range(ROUNDS * 8 // window):
        yield [rng.randbytes(rng.choice(SIZES)) for _ in range(window)]


def call_plain(port, window, spinning=False):
    payload = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0 if spinning else PATIENCE)
        s.connect(("127.0.0.1", port))
        for batch in batches(window):
            for m in batch:
                s.send(m)
            back = [spin(lambda: s.recv(65536), PATIENCE) for _ in batch]
            assert back == batch, f"other datagrams came back: {[len(m) for m in back]}"
            payload += 2 * sum(map(len, batch))
    return payload


class Caller(asyncio.DatagramProtocol):
    def __init__(self):
        self.queue = asyncio.Queue()

    def datagram_received(self, data, address):
        self.queue.put_nowait(data)

    def error_received(self, error):
        raise error


async def call_asyncio(port, window):
    payload = 0
    loop = asyncio.get_running_loop()
    transport, caller = await loop.create_datagram_endpoint(Caller, remote_addr=("127.0.0.1", port))
    for batch in batches(window):
        # An empty one says asyncio that there is nothing to send.
        batch = [m or b"-" for m in batch]
        for m in batch:
            transport.sendto(m)
        back = [await asyncio.wait_for(caller.queue.get(), PATIENCE) for _ in batch]
        assert back == batch, f"other datagrams came back: {[len(m) for m in back]}"
        payload += 2 * sum(map(len, batch))
    transport.close()
    return payload


role, style = sys.argv[1:3]
if role == "server":
    if style == "asyncio":
        asyncio.run(serve_asyncio())
    else:
        {"plain": serve_plain, "selectors": serve_selectors, "spinning": serve_spinning, "threads": serve_threads,
         "group": serve_group, "forking": serve_forking}[style]()
else:
    words = sys.argv[3:]
    port, window = map(int, reversed(words[1:]) if words[0] == "last" else words)
    if style == "asyncio":
        payload = asyncio.run(call_asyncio(port, window))
    else:
        payload = call_plain(port, window, style == "spinning")
    print("payload", payload)
