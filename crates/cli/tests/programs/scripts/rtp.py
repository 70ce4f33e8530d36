"""rtp.py receiver: a receiver of RTP (RFC 3550) that prints its port, and on the port after it takes the sender's questions and
answers by reports. rtp.py sender PORT: frames of 160 octets in bursts of 40; after each it asks for a report. Prints the frames
that the last report has, of which none may be lost, doubled or out of order."""
import selectors
import socket
import struct
import sys

HEADER = struct.Struct("!BBHII")
REPORT = struct.Struct("!III")
BURST, BURSTS, SOURCE, PATIENCE = 40, 60, 0x1234567, 30


def pair():
    """Two sockets at neighbouring ports."""
    while True:
        data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        data.bind(("127.0.0.1", 0))
        control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            control.bind(("127.0.0.1", data.getsockname()[1] + 1))
            return data, control
        except (OSError, OverflowError):
            data.close()
            control.close()


def receive():
    data, control = pair()
    print("port", data.getsockname()[1], flush=True)
    frames = disorder = highest = 0
    with selectors.PollSelector() as selector:
        selector.register(data, selectors.EVENT_READ)
        selector.register(control, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            # Frames first: a report is about all that came before it was asked for.
            if data in ready:
                packet = data.recv(2048)
                version, kind, number, stamp, source = HEADER.unpack_from(packet)
                assert (version, kind, source) == (0x80, 0, SOURCE), packet[:12]
                assert len(packet) == HEADER.size + 160 and stamp == 160 * number
                assert packet[HEADER.size:] == bytes([number % 256]) * 160
                disorder += number != highest + 1
                highest = number
                frames += 1
            elif control in ready:
                _, address = control.recvfrom(2048)
                control.sendto(REPORT.pack(frames, highest, disorder), address)


def send(port):
    data, control = pair()
    data.connect(("127.0.0.1", port))
    control.connect(("127.0.0.1", port + 1))
    control.settimeout(PATIENCE)
    number = 0
    for _ in range(BURSTS):
        for _ in range(BURST):
            number += 1
            data.send(HEADER.pack(0x80, 0, number, 160 * number, SOURCE) + bytes([number % 256]) * 160)
        control.send(b"report")
        report = REPORT.unpack(control.recv(2048))
        assert report == (number, number, 0), (number, report)
    print("frames", number)


if sys.argv[1] == "receiver":
    receive()
else:
    send(int(sys.argv[2]))
