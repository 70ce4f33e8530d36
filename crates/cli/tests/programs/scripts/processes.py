"""Processes that share, hand on and inherit connections. The first argument says which case; prints what arrived."""

import ctypes
import errno
import fcntl
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import threading


def pair():
    """Both ends in this process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    return client, server


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            break
        data += part
    return data


def talk(a, b, rounds=200):
    for n in range(rounds):
        a.sendall(b"%99d\n" % n)
        assert exactly(b, 100) == b"%99d\n" % n
        b.sendall(b"%99d\r" % n)
        assert exactly(a, 100) == b"%99d\r" % n


def echo(s):
    while data := s.recv(65536):
        s.sendall(data)
    s.close()


def ping(port, rounds=300):
    with socket.create_connection(("127.0.0.1", port)) as s:
        for n in range(rounds):
            s.sendall(b"%99d\n" % n)
            assert exactly(s, 100) == b"%99d\n" % n


def fork(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def wait(*pids):
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0


def five_within():
    """Five connections of a process with itself, in turn."""
    pairs = [pair() for _ in range(5)]
    for _ in range(20):
        for a, b in pairs:
            talk(a, b, 50)


def files_sent():
    """sendfile: positions, ends, errors, and a socket that does not wait."""
    import tempfile

    a, b = pair()
    talk(a, b)
    data = bytes(n * 7 % 251 for n in range(300_000))
    with tempfile.TemporaryFile() as file, tempfile.NamedTemporaryFile() as named:
        file.write(data)
        file.flush()
        fd, out = file.fileno(), a.fileno()
        os.lseek(fd, 0, os.SEEK_SET)
        print(os.sendfile(out, fd, 10, 500), exactly(b, 500) == data[10:510], os.lseek(fd, 0, os.SEEK_CUR))
        print(os.sendfile(out, fd, None, 300), exactly(b, 300) == data[:300], os.lseek(fd, 0, os.SEEK_CUR))
        print(os.sendfile(out, fd, None, 40_000), exactly(b, 40_000) == data[300:40_300], os.lseek(fd, 0, os.SEEK_CUR))
        print(os.sendfile(out, fd, 299_990, 500), exactly(b, 10) == data[-10:])
        print(os.sendfile(out, fd, 400_000, 500), os.sendfile(out, fd, 0, 0))
        write_only = os.open(named.name, os.O_WRONLY)
        for source, offset in [(write_only, 0), (fd, -1), (999, 0)]:
            try:
                print(os.sendfile(out, source, offset, 10))
            except OSError as error:
                print(error.strerror)
        a.setblocking(False)
        sent = 0
        try:
            while sent < 100_000_000:
                sent += os.sendfile(out, fd, sent % 300_000, 300_000 - sent % 300_000)
        except BlockingIOError:
            print("full")
        whole = data * (sent // len(data) + 1)
        print(exactly(b, sent) == whole[:sent])
        a.setblocking(True)
        talk(a, b)
        b.close()
        try:
            for _ in range(100):
                os.sendfile(out, fd, 0, 1000)
        except OSError as error:
            print(error.strerror in ("Broken pipe", "Connection reset by peer"))


def files_in_one_call():
    """A long file by a single call on a fresh connection: with a position of its own, or the file's."""
    size = 100 << 20
    file = os.memfd_create("file")
    block = bytes(n * 7 % 251 for n in range(1 << 20))
    for n in range(size >> 20):
        os.write(file, n.to_bytes(8) + block[8:])
    for offset in (None, 5):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def send():
                with socket.create_connection(listener.getsockname()) as s:
                    os.lseek(file, 1 << 20, os.SEEK_SET)
                    print(os.sendfile(s.fileno(), file, offset, 2 * size), os.lseek(file, 0, os.SEEK_CUR), flush=True)
                    s.sendall(b"the end")

            child = fork(send)
            s, _ = listener.accept()
        at = (1 << 20) if offset is None else offset
        same = True
        while at < size:
            data = exactly(s, min(1 << 20, size - at))
            same &= data == os.pread(file, len(data), at)
            at += len(data)
        print(at == size, same, exactly(s, 100), flush=True)
        s.close()
        wait(child)


def forked_before_any_socket():
    def work():
        talk(*pair())

    wait(fork(work), fork(lambda: wait(fork(work))))


def prefork():
    """Four children accept on the listener of their parent, which never does."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def work():
        while True:
            s, _ = listener.accept()
            echo(s)

    children = [fork(work) for _ in range(4)]
    listener.close()
    wait(*[fork(lambda: [ping(port) for _ in range(5)]) for _ in range(4)])
    for child in children:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def fork_per_connection():
    """The parent accepts and forks; the child serves."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = fork(lambda: [ping(listener.getsockname()[1]) for _ in range(8)])
    children = []
    for _ in range(8):
        s, _ = listener.accept()
        children.append(fork(lambda: echo(s)))
        s.close()
    wait(client, *children)


def read_by_a_child():
    """A connection is up; its reader's child goes on with it, and a thread of the writer that never slept before waits for
    room. The child's reads wake it: not all of its waits end by themselves."""
    import threading
    import time

    total = 32 << 20
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reader():
            s = socket.create_connection(listener.getsockname())
            for _ in range(200):
                s.sendall(exactly(s, 100))

            def child():
                s.sendall(b"go")
                got = 0
                while data := s.recv(1 << 16):
                    got += len(data)
                assert got == total, got

            wait(fork(child))

        pid = fork(reader)
        s, _ = listener.accept()
    for n in range(200):
        s.sendall(b"%99d\n" % n)
        assert exactly(s, 100) == b"%99d\n" % n
    assert exactly(s, 2) == b"go"
    waits = []

    def write():
        left = total
        poll = select.poll()
        poll.register(s, select.POLLOUT)
        s.setblocking(False)
        block = bytes(1 << 18)
        while left:
            begun = time.monotonic()
            poll.poll()
            waits.append(time.monotonic() - begun)
            try:
                left -= s.send(block[:left])
            except BlockingIOError:
                pass
        s.shutdown(socket.SHUT_WR)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    wait(pid)
    long = sorted(w for w in waits if w > 0.001)
    if len(long) > 16:
        assert long[len(long) // 8] < 0.018, (len(waits), len(long), long[len(long) // 8])


def shared_by_children():
    """Both ends live on rings when their process forks: both copies write, both copies read."""
    a, b = pair()
    talk(a, b)
    writers = [fork(lambda: [a.sendall(b"x" * 1000) for _ in range(500)]) for _ in range(3)]
    a.sendall(b"y" * 1000)
    total = 0
    while total < 3 * 500 * 1000 + 1000:
        total += len(b.recv(65536))
    wait(*writers)
    b.setblocking(False)
    assert not select.select([b], [], [], 0.05)[0]
    b.setblocking(True)
    talk(a, b)
    print("arrived", total)


def leave_time():
    """What is forked, or executed, from now on is in another time namespace, and shows other start times."""
    CLONE_NEWTIME = 0x80
    if ctypes.CDLL(None).unshare(CLONE_NEWTIME):
        raise OSError("no time namespace")
    with open("/proc/self/timens_offsets", "w") as file:
        file.write("boottime 1000 0")


def written_in_two_times():
    """A process of another time namespace may be stopped anywhere as it writes: no other one takes it for dead, and writes in its place."""
    a, b = pair()
    talk(a, b)
    leave_time()
    first = fork(lambda: [a.sendall(b"A" * 10) for _ in range(1000)])
    stopped = os.WIFSTOPPED(os.waitpid(first, os.WUNTRACED)[1])
    told, tell = os.pipe()

    def second():
        a.sendall(b"B" * 10)
        os.write(tell, b"done")

    writers = [fork(second)]
    if stopped:
        print("stopped", flush=True)
        is_waited_for = not select.select([told], [], [], 0.3)[0]
        os.kill(first, signal.SIGCONT if is_waited_for else signal.SIGKILL)
        assert is_waited_for
        writers.append(first)
    data = exactly(b, 10_010)
    wait(*writers)
    talk(a, b)
    print(data.count(b"A"), data.count(b"B"))


def handed_on_into_another_time():
    """A program that is executed goes on with a connection, in another time namespace than the one before it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = fork(lambda: echo(listener.accept()[0]))
        s = socket.create_connection(listener.getsockname())
    for n in range(300):
        s.sendall(b"%99d\n" % n)
        assert exactly(s, 100) == b"%99d\n" % n

    def go_on():
        leave_time()
        os.set_inheritable(s.fileno(), True)
        code = f"import os; print(all(os.write({s.fileno()}, b'x') and os.read({s.fileno()}, 1) for _ in range(300)), flush=True)"
        os.execv(sys.executable, [sys.executable, "-c", code])

    wait(fork(go_on))
    s.close()
    wait(server)


def handed_on(method):
    """One end goes to a new program while the other has bytes under way."""
    a, b = pair()
    talk(a, b)
    a.sendall(b"early ")
    if method == "vfork":
        code = f"import os; print(os.read({b.fileno()}, 6) + os.read({b.fileno()}, 5), flush=True)"
        child = subprocess.Popen([sys.executable, "-c", code], pass_fds=[b.fileno()])
    else:
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=print_exactly, args=(b, 10))
        child.start()
    a.sendall(b"later")
    b.close()
    child.wait() if method == "vfork" else child.join()
    a.close()


def print_exactly(s, n):
    print(exactly(s, n + 1), flush=True)


def privileges_dropped():
    """The user changes while a connection is on rings, and another one is made after."""
    a, b = pair()
    talk(a, b)
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(1, 1, 1)
        os.setresuid(1, 1, 1)
    talk(a, b)
    talk(*pair())


def everything_closed():
    """As daemons do: all descriptors are closed, those of the library too if it does not take care."""
    a, b = pair()
    talk(a, b)
    if fork_and_leave():
        return
    os.setsid()
    os.closerange(3, 1 << 16)
    null = os.open("/dev/null", os.O_RDWR)
    assert null == 3, null
    talk(*pair())


def fork_and_leave():
    pid = os.fork()
    if pid:
        wait(pid)
    return pid


def limit_lowered():
    """No more descriptors than there are, while connections live and new ones are wanted."""
    import resource

    a, b = pair()
    talk(a, b)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (b.fileno() + 1, hard))
    talk(a, b)
    try:
        pair()
        print("more than allowed")
    except OSError as error:
        print(error.strerror)
    talk(a, b)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    talk(*pair())


def ranges_closed():
    """os.closerange over numbers among which the library may have some of its own: all of the program's are closed."""
    a, b = pair()
    talk(a, b)
    file = os.open("/dev/null", os.O_RDONLY)
    copies = []
    for start in (600, 760, 1000, 1020, 1500):
        copies += [fcntl.fcntl(file, fcntl.F_DUPFD, start) for _ in range(100)]
    os.closerange(600, 2000)
    print(len(copies), sum(is_open(fd) for fd in copies))
    talk(a, b)
    talk(*pair())


def is_open(fd):
    try:
        os.fstat(fd)
        return True
    except OSError:
        return False


def replaced_by_dup2():
    """A live connection is replaced by another one, under its number."""
    a, b = pair()
    c, d = pair()
    talk(a, b)
    talk(c, d)
    a.sendall(b"last words")
    os.dup2(c.fileno(), a.fileno())
    print(exactly(b, 11))
    talk(a, d)
    c.close()
    talk(a, d)


def asleep(thread):
    """Waits until a thread sleeps in a system call of its own, and not in one of the interpreter's for its turn."""
    import time

    FUTEX = "202"
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with open(f"/proc/self/task/{thread.native_id}/syscall") as file:
            call = file.read().split()[0]
        if call not in ("running", "-1", FUTEX):
            return
        time.sleep(0.01)
    raise AssertionError("the thread does not sleep")


def closed_under_a_reader():
    """A thread blocks in recv while another closes the descriptor. The kernel's reader goes on; on a ring it may be told
    that the descriptor is closed. It does not hang, and the number is free for others at once."""
    import threading

    a, b = pair()
    talk(a, b)
    got = []

    def read():
        try:
            got.append(os.read(number, 100))
        except OSError as error:
            assert error.errno == errno.EBADF, error
            got.append(b"still there")

    reader = threading.Thread(target=read)
    number = b.detach()
    reader.start()
    asleep(reader)
    os.close(number)
    c, d = pair()
    assert number in (c.fileno(), d.fileno())
    try:
        a.sendall(b"still there")
    except ConnectionError:
        pass
    reader.join(10)
    print(got)
    talk(c, d)


def stream(a, b, total):
    """One way, by a thread of its own."""
    import threading

    def write():
        left = total
        while left:
            left -= a.send(bytes(min(left, 1 << 18)))

    writer = threading.Thread(target=write)
    writer.start()
    left = total
    while left:
        left -= len(b.recv(min(left, 1 << 18)))
    writer.join()


def outlived_child():
    """A child holds the connection, which goes back to the kernel meanwhile, and is killed: its parent goes on alone."""
    a, b = pair()
    talk(a, b)
    child = fork(signal.pause)
    # A ring that stays full goes to the kernel.
    a.setblocking(False)
    sent = 0
    for _ in range(10):
        try:
            while True:
                sent += a.send(bytes(1 << 16))
        except BlockingIOError:
            select.select([], [a], [], 0.03)
    a.setblocking(True)
    print(len(exactly(b, sent)) == sent)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    stream(a, b, 256 << 20)


def bell_told_before_a_vfork():
    """A thread of the other end sleeps for the first time; then a child in this process's memory executes a program, and
    takes another connection back for that. The thread's bell still rings."""
    import threading
    import time

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def other_end():
            a, b = (socket.create_connection(listener.getsockname()) for _ in range(2))
            for s in (a, b):
                for _ in range(300):
                    s.sendall(exactly(s, 100))

            def sleeper():
                b.sendall(exactly(b, 5))

            thread = threading.Thread(target=sleeper)
            thread.start()
            thread.join()
            echo(a)

        pid = fork(other_end)
        a, b = (listener.accept()[0] for _ in range(2))
    for s in (a, b):
        for n in range(300):
            s.sendall(b"%99d\n" % n)
            assert exactly(s, 100) == b"%99d\n" % n
    # Until the thread sleeps.
    time.sleep(0.5)
    a.set_inheritable(True)
    subprocess.run(["true"], close_fds=False, check=True)
    b.settimeout(20)
    b.sendall(b"wake!")
    print(exactly(b, 5))
    a.sendall(b"still there")
    print(exactly(a, 11))
    a.close()
    wait(pid)


def resting_ones_keep_nobody_out():
    """More connections than may be about to come up at a time rest after a few words, with somebody who never answers that. One that
    comes later has its turn."""
    import resource
    import time

    # That follows from how many descriptors there may be.
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    rests = """
import socket, sys
all = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(100)]
for s in all:
    for _ in range(40):
        s.sendall(b"ping")
        assert s.recv(4, socket.MSG_WAITALL) == b"ping"
print(flush=True)
input()
"""
    talks = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    for _ in range(2000):
        s.sendall(b"a" * 100)
        assert s.recv(100, socket.MSG_WAITALL) == b"a" * 100
"""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        port = str(listener.getsockname()[1])
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        resting = subprocess.Popen([sys.executable, "-c", rests, port], env=plain, **pipes)
        resters = [listener.accept()[0] for _ in range(100)]
        for s in resters:
            for _ in range(40):
                s.sendall(exactly(s, 4))
        resting.stdout.readline()
        # So long its name is there for others.
        time.sleep(0.6)
        talking = subprocess.Popen([sys.executable, "-c", talks, port])
        s = listener.accept()[0]
        for _ in range(2000):
            s.sendall(exactly(s, 100))
        print(talking.wait())
        resting.stdin.close()
        print(resting.wait())


def open_for_each_size():
    """Connections with socket buffers of seven sizes take no more memory of a process that locks all that it has mapped than their number asks for."""
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for size in [4096 << n for n in range(7)]:
            for _ in range(4):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
                client.connect(listener.getsockname())
                lines.append((client, listener.accept()[0]))
                talk(*lines[-1])
    touched = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "bypath-arena" in line and " rw-s " in line:
                at, to = (int(word, 16) for word in line.split()[0].split("-"))
                touched += to - at
    # Each end maps them, of at most 256 KiB each way.
    print("too much" if touched > 2 * len(lines) * (520 << 10) else "little enough")


def bell_that_cannot_be_told():
    """As many descriptors are on their way as this user may send: a thread that sleeps for the first time cannot tell the
    other end how to wake it. Its bytes come all the same."""
    import array
    import ctypes
    import resource
    import threading

    CLONE_NEWUSER = 0x10000000
    # Whoever may do everything may send without end: not so in a namespace of its own, in which it is the same user.
    user = os.geteuid()
    if ctypes.CDLL(None).unshare(CLONE_NEWUSER):
        raise OSError("no user namespace")
    with open("/proc/self/uid_map", "w") as file:
        file.write(f"{user} {user} 1")
    told, tell = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def other_end():
            s = socket.create_connection(listener.getsockname())
            for _ in range(300):
                s.sendall(exactly(s, 100))
            resource.setrlimit(resource.RLIMIT_NOFILE, (1500, 1500))
            out, into = socket.socketpair()
            many = array.array("i", [tell] * 250)
            try:
                for _ in range(100):
                    out.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
                raise AssertionError("no limit")
            except OSError as error:
                assert error.errno == errno.ETOOMANYREFS, error

            def sleeper():
                os.write(tell, b"%d\n" % threading.get_native_id())
                s.sendall(exactly(s, 5))

            thread = threading.Thread(target=sleeper)
            thread.start()
            thread.join()
            into.close()

        pid = fork(other_end)
        s, _ = listener.accept()
    for n in range(300):
        s.sendall(b"%99d\n" % n)
        assert exactly(s, 100) == b"%99d\n" % n
    thread = int(os.read(told, 20))
    # Until it sleeps in one call for a while.
    asleep = 0
    while asleep < 20:
        select.select([], [], [], 0.01)
        with open(f"/proc/{pid}/task/{thread}/stat") as file:
            asleep = asleep + 1 if file.read().rsplit(")", 1)[1].split()[0] == "S" else 0
    s.settimeout(20)
    s.sendall(b"wake!")
    print(exactly(s, 5))
    s.close()
    wait(pid)


def shut_down_without_room():
    """A writer that never waits fills everything there is, and shuts its side down in several ways; who reads late gets
    every byte, and then the end."""

    def pattern(start, n):
        return bytes((i * 7 + i // 256) % 251 for i in range(start, start + n))

    def fill(s):
        n = 0
        while True:
            try:
                n += s.send(pattern(n, 5000))
            except BlockingIOError:
                return n

    ways = {
        "WR": lambda s: s.shutdown(socket.SHUT_WR),
        "RDWR": lambda s: s.shutdown(socket.SHUT_RDWR),
        "WR twice": lambda s: (s.shutdown(socket.SHUT_WR), s.shutdown(socket.SHUT_WR)),
        "WR, close": lambda s: (s.shutdown(socket.SHUT_WR), s.close()),
        "WR, exit": lambda s: (s.shutdown(socket.SHUT_WR), os._exit(0)),
        "WR, kill": lambda s: (s.shutdown(socket.SHUT_WR), os.kill(os.getpid(), signal.SIGKILL)),
    }
    for name, way in ways.items():
        for small in (False, True):
            told, tell = os.pipe()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10000)

                def writer():
                    s = socket.create_connection(listener.getsockname())
                    for _ in range(300):
                        s.sendall(exactly(s, 100))
                    s.setblocking(False)
                    if small:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
                    os.write(tell, b"%20d" % fill(s))
                    way(s)
                    os.write(tell, b"%20d" % 1)
                    if s.fileno() >= 0:
                        try:
                            s.send(b"x")
                            raise AssertionError("sent")
                        except BrokenPipeError:
                            pass
                        # As the kernel: sending does not wait, it fails.
                        poll = select.poll()
                        poll.register(s, select.POLLOUT)
                        assert poll.poll(0)
                        s.setblocking(True)
                        if name != "RDWR":
                            assert exactly(s, 5) == b"thank"

                pid = fork(writer)
                s, _ = listener.accept()
            for n in range(300):
                s.sendall(b"%99d\n" % n)
                assert exactly(s, 100) == b"%99d\n" % n
            sent = int(os.read(told, 20))
            # Not before the writer has shut its side down, and is gone if it goes.
            gone = name in ("WR, exit", "WR, kill")
            status = os.waitpid(pid, 0)[1] if gone else os.read(told, 20) and None
            s.settimeout(20)
            data = exactly(s, sent + 1)
            same = data == pattern(0, sent)
            if name in ("WR", "WR twice"):
                s.sendall(b"thank")
            if not gone:
                status = os.waitpid(pid, 0)[1]
            print(name, small, same or f"{len(data)} of {sent}", status)
            s.close()
            os.close(told)
            os.close(tell)


def everybody_has_a_turn():
    """A set with ends that are always ready, on rings and in the kernel, and little room in each answer."""
    import time

    pairs = [pair() for _ in range(5)]
    for a, b in pairs:
        talk(a, b)
    told, tell = os.pipe()
    os.write(tell, b"x")
    listener = socket.create_server(("127.0.0.1", 0))
    waiting = socket.create_connection(listener.getsockname())
    poll = select.epoll()
    names = {told: "pipe", listener.fileno(): "listener"}
    for n, (a, b) in enumerate(pairs):
        b.sendall(b"never read")
        assert select.select([a], [], [], 20)[0]
        names[a.fileno()] = f"end {n}"
        poll.register(a, select.EPOLLIN | (select.EPOLLOUT if n % 2 else 0))
    for fd in told, listener.fileno():
        poll.register(fd, select.EPOLLIN)
    for room in range(1, len(names) + 1):
        seen = {names[fd] for _ in range(300) for fd, _ in poll.poll(1, room)}
        print(room, sorted(seen))

    # Somebody who works for a while on each event: what the kernel has comes with the next answer.
    poll.unregister(listener)
    for late in range(50):
        os.read(told, 1)
        for _ in range(3):
            poll.poll(1, 64)
        os.write(tell, b"x")
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        if told not in dict(poll.poll(1, 64)):
            print("late")
    waiting.close()


def closed_as_it_comes_up():
    """Connections that end about when both ends have found each other: what one was given serves the next."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for _ in range(4000):
                s, _ = listener.accept()
                echo(s)

        pid = fork(serve)
        for n in range(4000):
            with socket.create_connection(listener.getsockname()) as s:
                # Mostly just before the answer of the other end is looked at.
                for _ in range(1 + n % 8 if n % 8 < 3 else 2):
                    s.sendall(b"ping")
                    assert exactly(s, 4) == b"ping"
    with open("/proc/self/maps") as maps:
        # One whose slots were not all given is mapped in two parts.
        print(sum("bypath-arena" in line and line.split()[2] == "00000000" for line in maps) <= 2)
    wait(pid)


def reset_under_a_writer():
    """The reader ends with bytes unread, by a close or killed, while the writer waits for room: what the writer's calls say."""
    import time

    for size in (500, 8192, 10_000, 100_000):
        for end in ("close", "kill"):
            with socket.create_server(("127.0.0.1", 0)) as listener:

                def read():
                    s = socket.create_connection(listener.getsockname())
                    for _ in range(100):
                        s.sendall(exactly(s, 10))
                    # Until the writer has filled whatever there is.
                    time.sleep(0.5)
                    if end == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    s.close()

                pid = fork(read)
                s, _ = listener.accept()
            for _ in range(100):
                s.sendall(b"0123456789")
                assert exactly(s, 10) == b"0123456789"
            said = []
            while len(said) < 3:
                try:
                    s.send(bytes(size))
                except OSError as error:
                    said.append(error.strerror)
            print(size, end, *said)
            os.waitpid(pid, 0)
            s.close()


def slow_reader():
    """What the reader leaves on the carrier when the ring comes takes it longer than a full ring is waited for."""
    import time

    total = 48 << 20
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def write():
            with socket.create_connection(listener.getsockname()) as s:
                left = total
                while left:
                    left -= s.send(bytes(min(left, 1 << 18)))

        writer = fork(write)
        s, _ = listener.accept()
    got = 0
    while data := s.recv(1 << 15):
        got += len(data)
        time.sleep(0.002)
    wait(writer)
    print(got == total)


def answering(listener, count, tell):
    """Accepts `count` connections in turn. On each it looks for the other end first, and then answers its call."""
    kept = []
    for _ in range(count):
        s, _ = listener.accept()
        for _ in range(15):
            exactly(s, 1)
        s.sendall(b"a")
        s.sendall(b"b")
        os.write(tell, b"is there")
        for _ in range(8):
            exactly(s, 1)
        os.write(tell, b"answered")
        kept.append(s)
    echo(s)


def called(s, told):
    """Calls the other end. Its answer is there, and was not looked at."""
    for _ in range(15):
        s.sendall(b".")
    assert os.read(told, 8) == b"is there"
    s.sendall(b"1")
    s.sendall(b"2345678")
    assert os.read(told, 8) == b"answered"


def echoed(s):
    for n in range(4000):
        block = n.to_bytes(4, "big") * 2048
        s.sendall(block)
        assert exactly(s, len(block)) == block


def answers_of_two_servers():
    """A process has connections to two others. What founds the pair with the one waits, unread, behind what founds the pair
    with the other, and the third connection is the first to look."""
    told, tell = os.pipe()
    counts = (1, 2)
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in counts]
    pids = [fork(lambda: answering(*of, tell)) for of in zip(listeners, counts)]
    made = [
        socket.create_connection(listener.getsockname())
        for listener, count in zip(listeners, counts)
        for _ in range(count)
    ]
    for s in made:
        called(s, told)
    assert exactly(made[-1], 2) == b"ab"
    echoed(made[-1])
    for s in made:
        print(s is made[-1] or exactly(s, 2) == b"ab")
        s.close()
    wait(*pids)


def forked_before_the_answer():
    """A child shares the connection for a while, from after the call until after the answer."""
    told, tell = os.pipe()
    listener = socket.create_server(("127.0.0.1", 0))
    pid = fork(lambda: answering(listener, 1, tell))
    s = socket.create_connection(listener.getsockname())
    called(s, told)
    child = fork(signal.pause)
    assert exactly(s, 2) == b"ab"
    for _ in range(20):
        s.sendall(b"shared")
        assert exactly(s, 6) == b"shared"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    echoed(s)
    s.close()
    wait(pid)


CASES = {
    "spawn": lambda: handed_on("spawn"),
    "vfork": lambda: handed_on("vfork"),
}

if __name__ == "__main__":
    signal.alarm(60)
    name = sys.argv[1]
    CASES.get(name, globals().get(name))()
    print("done", flush=True)
