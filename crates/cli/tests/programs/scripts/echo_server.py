"""echo_server.py asyncio|selectors|threads: an echo server; prints its port."""
import asyncio
import selectors
import socket
import socketserver
import sys


def announce(port):
    print("port", port, flush=True)


async def with_asyncio():
    async def serve(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def with_selectors():
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    pending = {}
    ended = set()
    announce(listener.getsockname()[1])
    while True:
        for key, mask in selector.select():
            s = key.fileobj
            if s is listener:
                client, _ = listener.accept()
                client.setblocking(False)
                pending[client] = bytearray()
                selector.register(client, selectors.EVENT_READ)
                continue
            out = pending[s]
            if mask & selectors.EVENT_READ:
                data = s.recv(65536)
                out += data
                if not data:
                    ended.add(s)
            if out:
                try:
                    del out[: s.send(out)]
                except BlockingIOError:
                    pass
            if s in ended and not out:
                selector.unregister(s)
                del pending[s]
                ended.discard(s)
                s.close()
                continue
            # Back-pressure: what is not sent yet is bounded.
            wanted = selectors.EVENT_WRITE if out else 0
            if s not in ended and len(out) < 1 << 20:
                wanted |= selectors.EVENT_READ
            selector.modify(s, wanted)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True


style = sys.argv[1]
if style == "asyncio":
    asyncio.run(with_asyncio())
elif style == "selectors":
    with_selectors()
else:
    with Threads(("127.0.0.1", 0), Echo) as server:
        announce(server.server_address[1])
        server.serve_forever()
