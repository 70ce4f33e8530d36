"""An FTP session: upload, download, and downloads that are aborted by urgent data, with another after each.

ftp.py PORT DIRECTORY FILE: sends FILE as "up", fetches it into the file "down" of the working directory.
"""

import ftplib
import hashlib
import sys

ABORTS = 3
# Interrupt Process and the Synch signal (RFC 959 section 4.1.3, RFC 854): the urgent byte is the second IAC.
IAC, IP, DM = b"\xff", b"\xf4", b"\xf2"


def abort(ftp, name, least):
    """Begins to fetch, aborts after `least` bytes; returns what came."""
    received = b""
    with ftp.transfercmd("RETR " + name) as data:
        while len(received) < least:
            received += data.recv(65536)
        ftp.sock.sendall(IAC + IP + IAC, ftplib.MSG_OOB)
        ftp.sock.sendall(DM + b"ABOR\r\n")
        # The server stops by itself; until then it may be blocked in sending.
        while block := data.recv(65536):
            received += block
    answers = [ftp.getmultiline(), ftp.getmultiline()]
    assert answers[0].startswith("426"), answers
    assert answers[1].startswith("226"), answers
    return received


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(port, directory, path):
    with open(path, "rb") as file:
        content = file.read()
    ftp = ftplib.FTP()
    ftp.connect("127.0.0.1", port, timeout=60)
    ftp.login()
    ftp.cwd(directory)
    with open(path, "rb") as file:
        ftp.storbinary("STOR up", file, blocksize=65536)
    for n in range(ABORTS):
        received = abort(ftp, "up", (n + 1) << 20)
        assert len(received) < len(content), "aborted too late"
        assert received == content[: len(received)], "other bytes than those of the file"
        print("aborted after", len(received), flush=True)
    with open("down", "wb") as file:
        ftp.retrbinary("RETR up", file.write, blocksize=65536)
    assert digest("down") == digest(path)
    assert "up" in ftp.nlst()
    ftp.quit()


main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
