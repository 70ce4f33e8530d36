"""stranger.py echo | flood PORT: plain programs beside a victim.
stranger.py tcp PORT | udp: a victim, which moves octets until SIGTERM; prints its socket's cookie, and at the end its longest pause in seconds.
stranger.py ally: answers the call of a victim that is connected to it by nonsense, and leaves a descriptor whose last close waits unread behind that;
then prints how long the victim's longest call took, in seconds.
stranger.py attack NAME: calls the victim at this abstract name with a descriptor whose last close waits for LINGER seconds."""
import select
import signal
import socket
import struct
import sys
import time

LINGER, PATIENCE, SO_COOKIE, SO_PASSRIGHTS = 40, 30, 57, 83


def lingering():
    """A connection with octets that nobody takes, and what keeps it."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    reader = listener.accept()[0]
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        pass
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
    return sender, (listener, reader)


def attack(name):
    sender, _kept = lingering()
    end, declined = time.monotonic() + PATIENCE, None
    while True:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            can_refuse = caller.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS) is not None
        except OSError:
            can_refuse = False
        try:
            caller.connect("\0" + name)
            socket.send_fds(caller, [bytes(112)], [sender.fileno()])
        except PermissionError:
            assert can_refuse
            try:
                caller.send(bytes(112))
            except BrokenPipeError:
                # Declined already: the victim has seen it.
                pass
        except BrokenPipeError:
            # This call was declined before it was sent along. There may be another one to come.
            declined = declined or time.monotonic()
            continue
        except OSError:
            if declined and time.monotonic() > declined + 2:
                # It was the only one: the victim has seen it.
                caller = None
                break
            # Nobody is there yet.
            assert time.monotonic() < end, f"nobody was at {name}"
            time.sleep(0.001)
            continue
        else:
            assert not can_refuse, "the victim takes descriptors of anybody"
            sender.close()
        break
    print("sent", flush=True)
    # An answer, or the end of the connection: the victim has seen it.
    if caller:
        caller.settimeout(PATIENCE)
        try:
            caller.recv(1024)
        except ConnectionError:
            pass
    print("seen", flush=True)
    # Whoever reads ends the wait by ending.
    signal.pause()


def cookie_of(s):
    return "%016x" % struct.unpack("Q", s.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8))[0]


def is_asleep(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"


def ally():
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
    name = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name.bind("\0bypath/1/" + cookie_of(s))
    name.listen()

    def hear():
        octets = s.recv(4096, socket.MSG_WAITALL)
        assert len(octets) == 4096
        return octets

    octets = hear()
    while not select.select([name], [], [], 0)[0]:
        s.sendall(octets)
        octets = hear()
    channel = name.accept()[0]
    while not select.select([channel], [], [], 0)[0]:
        s.sendall(octets)
        octets = hear()
    assert channel.recv(1024)
    sender, _kept = lingering()
    # It waits for its echo, and looks at nothing meanwhile.
    pid = struct.unpack("iii", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    end = time.monotonic() + PATIENCE
    while not is_asleep(pid):
        assert time.monotonic() < end, "the victim does not wait"
        time.sleep(0.001)
    channel.send(bytes(112))
    socket.send_fds(channel, [bytes(112)], [sender.fileno()])
    sender.close()
    longest, is_over = 0.0, 0
    while is_over < 10:
        began = time.monotonic()
        s.sendall(octets)
        octets = hear()
        now = time.monotonic()
        longest = max(longest, now - began)
        assert now < end + PATIENCE, "the victim does not look"
        # It has seen the answer; one of its next calls is the one that closes.
        is_over += is_over > 0 or bool(select.select([channel], [], [], 0)[0])
    print("longest", longest, flush=True)


def until_told(step):
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    last, pause = time.monotonic(), 0.0
    while not told:
        step()
        now = time.monotonic()
        last, pause = now, max(pause, now - last)
    print("pause", pause, flush=True)


def victim(s, step):
    print("cookie", cookie_of(s), flush=True)
    until_told(step)


def tcp(port):
    s = socket.create_connection(("127.0.0.1", int(port)))

    def step():
        s.sendall(bytes(4096))
        assert len(s.recv(4096, socket.MSG_WAITALL)) == 4096

    victim(s, step)


def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    print("port", s.getsockname()[1], flush=True)
    victim(s, lambda: s.recv(2048))


def echo():
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
    while octets := s.recv(65536):
        s.sendall(octets)


def flood(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", int(port)))
    # It is ended from outside, or by an error when nobody receives any more.
    end = time.monotonic() + 2 * PATIENCE
    while time.monotonic() < end:
        s.send(bytes(100))
        time.sleep(0.001)


globals()[sys.argv[1]](*sys.argv[2:])
