"""HTTP/1.1 load with every body checked, until SIGTERM: http_load.py [HOST:]PORT DIR CONNECTIONS [close]

Each connection is a thread that asks for the files of DIR in turn and compares what comes with the file. With
`close` each request has a connection of its own. A request on a connection that was used before and ends before the
first byte of the answer is sent again on a new one (RFC 9112, 9.3.1: the server may close an idle connection at any
time); everything else that goes wrong is a failed request, and ends the load.

Lines on stdout: "serving NAME" for each new X-Worker header and "workers N", how many there were, "warm" when every connection did 50 requests, "moved N"
when so many MiB of bodies came; at the end the counts "requests", "retries", "payload" (bytes of bodies).
"""

import os
import signal
import socket
import sys
import threading

WARM = 50


class Load:
    def __init__(self, at, directory, close):
        self.at, self.close = at, close
        self.files = {}
        for name in sorted(os.listdir(directory)):
            with open(os.path.join(directory, name), "rb") as file:
                self.files[name] = file.read()
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.seen = set()
        self.failure = None
        self.requests = self.retries = self.payload = self.warm = 0

    def say(self, line):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def run(self, first):
        try:
            self.connection(first)
        except Exception as error:
            self.failure = self.failure or f"{type(error).__name__}: {error}"
            self.stop.set()

    def connection(self, first):
        names = list(self.files)
        at = Stream(self.at)
        done = 0
        while not self.stop.is_set():
            name = names[(first + done) % len(names)]
            try:
                body, worker, last = at.get(name, self.close)
            except Unanswered:
                if at.used == 0:
                    raise
                self.retries += 1
                at = Stream(self.at)
                continue
            if body != self.files[name]:
                raise ValueError(f"{name}: wrong body of {len(body)} bytes")
            done += 1
            with self.lock:
                self.requests += 1
                before, self.payload = self.payload, self.payload + len(body)
                if before >> 20 != self.payload >> 20:
                    self.say(f"moved {self.payload >> 20}")
                if worker and worker not in self.seen:
                    self.seen.add(worker)
                    self.say(f"serving {worker}\nworkers {len(self.seen)}")
                if done == WARM:
                    self.warm += 1
                    if self.warm == self.threads:
                        self.say("warm")
            if last:
                at.end()
                at = Stream(self.at)
        at.socket.close()


class Unanswered(Exception):
    """The connection ended before the first byte of the answer."""


class Stream:
    def __init__(self, at):
        self.socket = socket.create_connection(at, timeout=60)
        self.used = 0
        self.rest = b""

    def get(self, name, close):
        more = "close" if close else "keep-alive"
        try:
            self.socket.sendall(f"GET /{name} HTTP/1.1\r\nHost: test\r\nConnection: {more}\r\n\r\n".encode())
            head = self.socket.recv(65536)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Unanswered(str(error)) from error
        if not head:
            raise Unanswered("end of file")
        while b"\r\n\r\n" not in head:
            head += self.more()
        head, body = head.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        fields = {key.lower(): value.strip() for key, value in (line.split(":", 1) for line in lines[1:])}
        if lines[0].split(" ")[1] != "200":
            raise ValueError(f"{name}: {lines[0]}")
        length = int(fields["content-length"])
        parts, have = [body], len(body)
        while have < length:
            parts.append(self.more())
            have += len(parts[-1])
        self.used += 1
        return b"".join(parts), fields.get("x-worker"), fields.get("connection", "").lower() == "close"

    def more(self):
        part = self.socket.recv(262144)
        if not part:
            raise EOFError("the answer ends early")
        return part

    def end(self):
        """The server said that it closes: nothing but the end of file may follow."""
        if self.socket.recv(1):
            raise ValueError("bytes after the last answer")
        self.socket.close()


def main():
    host, _, port = sys.argv[1].rpartition(":")
    directory, connections = sys.argv[2], int(sys.argv[3])
    load = Load((host or "127.0.0.1", int(port)), directory, "close" in sys.argv[4:])
    load.threads = connections
    signal.signal(signal.SIGTERM, lambda *_: load.stop.set())
    threads = [threading.Thread(target=load.run, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.say(f"requests {load.requests}\nretries {load.retries}\npayload {load.payload}")
    if load.failure:
        sys.exit(f"failed request: {load.failure}")


main()
