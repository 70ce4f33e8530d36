"""hands.py PORT HOW USER BECOME: a process with a connection to an echo server executes BECOME (become.c), which becomes USER and executes this once more,
without the library. HOW: "plain", by its path; "searched", in PATH, where another one of its name stands behind it; "opened", by a descriptor; "script", as the interpreter of a script;
"narrow", by a process that has more addresses already than it may have; "secure": this program itself, by a process whose effective user is not its real one. Says what the last one has: the answers to what was said
before and after, deeds, and descriptors of what the family says of its sockets."""
import os
import resource
import shutil
import socket
import sys

UNDER_WAY = b"under way" * 1000


def talk(s, what):
    s.sendall(what)
    assert s.recv(100) == what


def image(number):
    """The last program."""
    s = socket.socket(fileno=number)
    heard = b""
    while len(heard) < len(UNDER_WAY):
        heard += s.recv(len(UNDER_WAY) - len(heard))
    assert heard == UNDER_WAY
    for _ in range(40):
        talk(s, b"image")
    links = []
    for n in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink("/proc/self/fd/" + n))
        except FileNotFoundError:
            pass
    with open("/proc/self/maps") as maps:
        print("libraries", sum("libbypath" in line for line in maps))
    print("answers", 1)
    print("deeds", sum(name == "BYPATH_DEED" for name in os.environ))
    print("regions", sum("bypath-view" in link for link in links), flush=True)


def folder(name, program):
    """A folder of the scene with a program of that name."""
    os.mkdir(name)
    shutil.copy(program, name + "/hands-program")
    return os.path.abspath(name)


def main():
    if sys.argv[1] == "image":
        return image(int(sys.argv[2]))
    port, how, user, become = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    s = socket.create_connection(("127.0.0.1", port))
    for _ in range(40):
        talk(s, b"ping")
    with open("/proc/self/maps") as maps:
        assert "bypath-arena" in maps.read(), "nothing is shared"
    s.set_inheritable(True)
    s.sendall(UNDER_WAY)
    last = [sys.executable, __file__, "image", str(s.fileno())]
    words = ["become", user, "-"] + last
    if how == "plain":
        os.execv(become, words)
    elif how == "searched":
        os.environ["PATH"] = folder("first", become) + ":" + folder("second", "/usr/bin/env")
        os.execvp("hands-program", words)
    elif how == "opened":
        os.execve(os.open(become, os.O_RDONLY), words, os.environ)
    elif how == "script":
        with open("script", "w") as script:
            script.write(f"#!{become} {user}\n")
        os.chmod("script", 0o755)
        os.execv("./script", ["./script"] + last)
    elif how == "narrow":
        with open("/proc/self/status") as status:
            size = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize:"))
        resource.setrlimit(resource.RLIMIT_AS, (size // 4 * 3, resource.RLIM_INFINITY))
        os.execv(become, words)
    elif how == "secure":
        os.setresuid(int(user), 0, 0)
        os.execv(sys.executable, last)


main()
