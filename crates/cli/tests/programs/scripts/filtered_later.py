"""filtered_later.py: an echo server that prints its port; from the end of its first connection on it is under a filter that kills for what takes a descriptor
table of one's own, installed past whoever stands before the C library."""
import ctypes
import socket

from seccomp import APART, install, killing

listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)


def echo():
    connection, _ = listener.accept()
    with connection:
        while octets := connection.recv(65536):
            connection.sendall(octets)


echo()
install(killing(APART), ctypes.CDLL("libc.so.6", use_errno=True))
while True:
    echo()
