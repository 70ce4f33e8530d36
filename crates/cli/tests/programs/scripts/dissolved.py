"""Sockets that are dissolved (connect(2) to AF_UNSPEC), or were reset, and are connected to somebody else then: all that arrives is of him. Prints what the kernel shows."""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
ROUNDS = 300


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            break
        data += part
    return data


def talk(s):
    for n in range(ROUNDS):
        s.sendall(b"%9d\n" % n)
        assert exactly(s, 10) == b"%9d\r" % n


def server(word):
    """A process that answers ROUNDS lines of each who calls, says its word, and then what its end tells. Port, process, what it tells."""
    listener = socket.create_server(("127.0.0.1", 0))
    reads, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        s, _ = listener.accept()
        listener.close()
        for n in range(ROUNDS):
            assert exactly(s, 10) == b"%9d\n" % n
            s.sendall(b"%9d\r" % n)
        s.sendall(word)
        os.write(tells, b"said ")
        try:
            os.write(tells, repr(exactly(s, 100)).encode())
        except OSError as error:
            os.write(tells, errno.errorcode[error.errno].encode())
        os._exit(0)
    os.close(tells)
    port = listener.getsockname()[1]
    listener.close()
    return port, pid, reads


def rest(reads):
    data = b""
    while part := os.read(reads, 100):
        data += part
    return data.decode()


def dissolve(s):
    done = LIBC.connect(s.fileno(), bytes(16), 16)
    assert done == 0, os.strerror(ctypes.get_errno())


def first(s, called):
    s.connect(("127.0.0.1", called[0]))
    talk(s)
    assert os.read(called[2], 5) == b"said "


def stopped(called):
    os.kill(called[1], signal.SIGSTOP)
    os.waitpid(called[1], os.WUNTRACED)


def ended(called):
    os.kill(called[1], signal.SIGCONT)
    print("the first one hears:", rest(called[2]))
    os.waitpid(called[1], 0)


def unread():
    """What the first one has said is not read, nor does it answer."""
    one, two = server(b"of the first one\n"), server(b"of the second one\n")
    s = socket.socket()
    first(s, one)
    stopped(one)
    dissolve(s)
    first(s, two)
    print(exactly(s, 18))
    ended(one)


def copied():
    """By another number of the socket."""
    one, two = server(b"of the first one\n"), server(b"of the second one\n")
    s = socket.socket()
    first(s, one)
    copy = s.dup()
    stopped(one)
    dissolve(copy)
    first(s, two)
    print(exactly(copy, 18), s.getpeername()[1] == two[0])
    ended(one)


def watched():
    """In an epoll set."""
    one, two = server(b"of the first one\n"), server(b"of the second one\n")
    s, watch = socket.socket(), select.epoll()
    first(s, one)
    watch.register(s, select.EPOLLIN)
    print(watch.poll(5) == [(s.fileno(), select.EPOLLIN)])
    stopped(one)
    dissolve(s)
    first(s, two)
    print(watch.poll(5) == [(s.fileno(), select.EPOLLIN)], exactly(s, 18))
    print(watch.poll(0.1))
    ended(one)


def begun(call):
    """A thread that sleeps in `call`, and what that tells it."""
    told = []

    def calls():
        try:
            told.append(call())
        except OSError as error:
            told.append(errno.errorcode[error.errno])

    thread = threading.Thread(target=calls)
    thread.start()
    while open(f"/proc/self/task/{thread.native_id}/stat").read().rsplit(")")[1].split()[0] != "S":
        pass
    return thread, told


def slept_on():
    """While a thread waits for more."""
    one, two = server(b""), server(b"of the second one\n")
    s = socket.socket()
    first(s, one)
    stopped(one)
    thread, told = begun(lambda: s.recv(100))
    dissolve(s)
    # Called anew at once: the call was about the first one (EPIPE since Linux 6.7).
    first(s, two)
    thread.join()
    print(told in (["EPIPE"], ["ECONNRESET"]))
    print(exactly(s, 18))
    ended(one)


def written_to():
    """While threads wait for room."""
    one, two = server(b""), server(b"of the second one\n")
    s = socket.socket()
    first(s, one)
    stopped(one)
    s.setblocking(False)
    try:
        while True:
            s.send(bytes(65536))
    except BlockingIOError:
        s.setblocking(True)
    copy = s.dup()
    calls = [
        lambda: s.send(b"for the first one"),
        lambda: copy.sendmsg([b"for the ", b"first one"]),
        lambda: os.write(s.fileno(), b"for the first one"),
        lambda: s.send(bytes(1 << 20)),
    ]
    threads = [begun(call) for call in calls]
    dissolve(s)
    first(s, two)
    for thread, told in threads:
        thread.join()
        print(told in (["EPIPE"], ["ECONNRESET"]))
    print(exactly(s, 18))
    s.close()
    copy.close()
    print("the second one hears:", rest(two[2]))
    ended(one)


def refused():
    """An address that is too long dissolves nothing."""
    one = server(b"of the first one\n")
    s = socket.socket()
    first(s, one)
    print(LIBC.connect(s.fileno(), bytes(200), 200), errno.errorcode[ctypes.get_errno()])
    print(exactly(s, 17))
    s.close()
    ended(one)


def over():
    """Who is connected stays so, also if the other end is gone."""
    one = server(b"of the first one\n")
    s = socket.socket()
    first(s, one)
    s.shutdown(socket.SHUT_WR)
    print(rest(one[2]))
    os.waitpid(one[1], 0)
    print(errno.errorcode[s.connect_ex(("127.0.0.1", one[0]))])
    print(exactly(s, 17), s.recv(10))


def reset():
    """Of one that was reset, without a word."""
    one, two = server(b"of the first one\n"), server(b"of the second one\n")
    s = socket.socket()
    first(s, one)
    os.kill(one[1], signal.SIGKILL)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    os.waitpid(one[1], 0)
    print(exactly(s, 17))
    dissolve(s)
    first(s, two)
    print(exactly(s, 18))


for case in (unread, copied, watched, slept_on, written_to, refused, over, reset):
    print(case.__name__, flush=True)
    case()
