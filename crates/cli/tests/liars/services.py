"""services.py USER FOLDER LIE COUNT: becomes this user, answers at the names LIE0, LIE1, ... of netstack services in the folder, so many, says on
standard output when it does, and stays until its input ends. honest:N tells of N sockets; other lies stand below."""
import os
import socket
import struct
import sys
import threading
import time

HEADER = struct.Struct("=IIQiI")
user, folder, lie, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
lie, _, sockets = lie.partition(":")
ABOUT = b'{"name":"x","pid":1}'
LISTENS = b'{"state":"Listen","cookie":"%x","local":"10.9.0.1:80"}'
SOCKET = (b'{"backlog":0,"cookie":"%016x","cwnd":14480,"domain":"ipv4","dropped":0,"from_program":"ring","local":"10.9.0.2:8080","mss":1460,'
          b'"protocol":"tcp","remote":"10.9.0.77:40000","retransmitted":0,"srtt_us":100,"state":"Established","to_program":"ring","uid":1000,'
          b'"unacknowledged":0,"unread":0,"unsent":0}')
# What is told without end.
ENDLESS = {
    "small": b'{"":0}',
    "deep": b'{"":' + b"[" * 100 + b"]" * 100 + b"}",
    "many": LISTENS % 1,
}


def answer(end, header, what):
    while lie == "slow":
        end.send(header + b"{}")
        time.sleep(0.1)
    if lie == "silent":
        time.sleep(1000)
    if b"service" in what:
        end.send(header + ABOUT)
    elif lie == "honest":
        end.send(header + LISTENS % 7)
        for n in range(1, int(sockets)):
            end.send(header + SOCKET % n)
    else:
        row = header + ENDLESS[lie]
        while True:
            end.send(row)
    end.send(header)


def serve(end):
    try:
        while question := end.recv(4096):
            op, serial, of, _, _ = HEADER.unpack(question[:24])
            answer(end, HEADER.pack(op, serial, of, 0, 0), question[24:])
    except OSError:
        # Who asked has heard enough.
        end.close()


def listen(name):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(os.path.join(folder, name))
    os.chmod(os.path.join(folder, name), 0o777)
    listener.listen(64)
    threading.Thread(target=accept, args=(listener,), daemon=True).start()


def accept(listener):
    while True:
        end, _ = listener.accept()
        threading.Thread(target=serve, args=(end,), daemon=True).start()


os.setgroups([])
os.setgid(user)
os.setuid(user)
for n in range(count):
    listen(f"{lie}{n}")
print("ready", flush=True)
sys.stdin.read()
