"""one_way.py server | client PORT: the client sends, and the server reads to the end, and says how much."""
import socket
import sys

PIECE, PIECES = bytes(512), 40_000

if sys.argv[1] == "server":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("port", listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    total = 0
    while read := len(connection.recv(len(PIECE))):
        total += read
    print("payload", total, flush=True)
else:
    with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as connection:
        for _ in range(PIECES):
            connection.sendall(PIECE)
