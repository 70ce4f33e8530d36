"""An FTP session: upload, download, and downloads that are aborted by urgent data, with another after each.

ftp.py PORT DIRECTORY FILE ABORTS: sends FILE as "up", fetches it into the file "down" of the working directory.
"""

import ftplib
import hashlib
import socket
import sys

# Interrupt Process and the Synch signal (RFC 959 section 4.1.3, RFC 854): the urgent byte is the second IAC.
IAC, IP, DM = b"\xff", b"\xf4", b"\xf2"


def abort(ftp, name, least, answers_first):
    """Begins to fetch, aborts after `least` bytes; returns what came."""
    received = bytearray()
    with ftp.transfercmd("RETR " + name) as data:
        while len(received) < least:
            received += data.recv(65536)
        ftp.sock.sendall(IAC + IP + IAC, socket.MSG_OOB)
        ftp.sock.sendall(DM + b"ABOR\r\n")
        # The server is or will be blocked in sending: the signal alone ends that.
        answers = [answer(ftp), answer(ftp)] if answers_first else []
        while block := data.recv(65536):
            received += block
    answers = answers or [answer(ftp), answer(ftp)]
    assert answers[0].startswith("426"), answers
    assert answers[1].startswith("22"), answers
    return received


def answer(ftp):
    """The next answer, whatever it says."""
    return ftp.getmultiline()


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(port, directory, path, aborts):
    with open(path, "rb") as file:
        content = file.read()
    ftp = ftplib.FTP()
    ftp.connect("127.0.0.1", port, timeout=60)
    ftp.login()
    ftp.cwd(directory)
    with open(path, "rb") as file:
        ftp.storbinary("STOR up", file, blocksize=65536)
    for n in range(aborts):
        received = abort(ftp, "up", (n + 2) << 23, n % 2 == 0)
        assert len(received) < len(content), "aborted too late"
        assert received == content[: len(received)], "other bytes than those of the file"
        print("aborted after", len(received), flush=True)
    with open("down", "wb") as file:
        ftp.retrbinary("RETR up", file.write, blocksize=65536)
    assert digest("down") == digest(path)
    assert "up" in ftp.nlst()
    ftp.quit()


main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
