"""pings.py PORT...: messages in step with each of several echo servers, over connections that stay open; prints the
payload moved, then waits to be killed if the first argument is `hold`."""
import signal
import sys

from ping import connect, ping

if __name__ == "__main__":
    hold = sys.argv[1] == "hold"
    connections = [connect(int(port)) for port in sys.argv[1 + hold :]]
    print("payload", sum(ping(connection, 1000) for connection in connections), flush=True)
    while hold:
        signal.pause()
