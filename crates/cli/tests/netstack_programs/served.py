"""http.server of CPython, which counts calls that it could not take: served.py HOST PORT"""

import http.server
import signal
import sys

failed = 0


class Server(http.server.ThreadingHTTPServer):
    def get_request(self):
        global failed
        try:
            return super().get_request()
        except OSError:
            failed += 1
            raise


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def ends(*_):
    print("failed", failed, flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, ends)
with Server((sys.argv[1], int(sys.argv[2])), Handler) as server:
    server.serve_forever()
