"""post.py serve ADDRESS [stamps] | call PORT ADDRESS: datagrams of 5 octets, answered by 3. The server prints its port; `stamps`: it asks the kernel when they came. The
caller reads lines: a number of questions and answers; `flood`, which sends and does not wait; `drain`, which forgets the answers that came; `times N`:
questions that say when they were sent. It prints `done` after each."""
import socket
import sys
import time

is_server = sys.argv[1] == "serve"
address = sys.argv[2 if is_server else 3]
end = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
if is_server:
    end.bind((address, 0))
    if "stamps" in sys.argv:
        SO_TIMESTAMPNS = 35
        end.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    print(end.getsockname()[1], flush=True)
    while True:
        question, whose = end.recvfrom(2048)
        end.sendto(b"yes", whose)
end.connect((address, int(sys.argv[2])))
for line in sys.stdin:
    if line == "flood\n":
        for _ in range(20000):
            end.send(b"again")
    elif line == "drain\n":
        end.settimeout(0.2)
        try:
            while end.recv(2048):
                pass
        except TimeoutError:
            end.settimeout(None)
    elif line.startswith("times "):
        for _ in range(int(line.removeprefix("times "))):
            end.send(b"%d" % time.time_ns())
            end.recv(2048)
    else:
        for _ in range(int(line)):
            end.send(b"again")
            end.recv(2048)
    print("done", flush=True)
