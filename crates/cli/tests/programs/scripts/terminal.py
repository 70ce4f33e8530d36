"""terminal.py PORT SCRIPT COMMAND: an interactive bash, started by COMMAND in a terminal that script(1) makes, with a
client of the echo server on PORT as its job: stopped, resumed, put into the background and interrupted.

Types only when what it waits for has appeared; 60 seconds without it, or other output than expected, is a failure. What
it types never contains what it waits for: the terminal echoes it. Prints "payload N", what the client sent and got."""
import os
import re
import selectors
import subprocess
import sys
import time

port, steady, command = sys.argv[1:]
shell = subprocess.Popen(
    ["script", "-q", "-e", "-c", command, "/dev/null"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
)
selector = selectors.DefaultSelector()
selector.register(shell.stdout, selectors.EVENT_READ)
at = 0
text = b""


def more(end):
    global text
    if not selector.select(max(0, end - time.monotonic())):
        sys.exit(f"nothing more came; so far:\n{text.decode(errors='replace')}")
    part = os.read(shell.stdout.fileno(), 65536)
    text += part
    return part


def wait(pattern):
    """Waits for the pattern behind what was waited for before."""
    global at
    end = time.monotonic() + 60
    while not (found := re.compile(pattern).search(text, at)):
        if not more(end):
            sys.exit(f"{pattern} never came:\n{text.decode(errors='replace')}")
    at = found.end()
    return found


def type(keys):
    shell.stdin.write(keys)


def run(line, pattern):
    type(line.encode() + b"\n")
    return wait(pattern)


CONTROL_C, CONTROL_D, CONTROL_Z, CONTROL_BACKSLASH = b"\x03", b"\x04", b"\x1a", b"\x1c"

run("PS1='ready> '; echo begin-$((40 + 2))", rb"begin-42")
run("tty && echo terminal-$((6 * 7))", rb"/dev/pts/\d+\r\n(?s:.*)terminal-42")
run("stty -a | grep -c isig; [ -t 0 ] && [ -t 1 ] && echo isatty-$((6 * 7))", rb"isatty-42")
# Interrupted and quit by keys; the shell goes on and knows by which signal.
run("sh -c 'echo sleeps-$((6 * 7)); exec sleep 1000'", rb"sleeps-42")
type(CONTROL_C)
run("echo status-$?-", rb"status-130-")
run("ulimit -c 0; sh -c 'echo sleeps-$((6 * 7)); exec sleep 1000'", rb"sleeps-42")
type(CONTROL_BACKSLASH)
run("echo status-$?-", rb"status-131-")
# A line of the terminal's own, and its end of file.
run("sh -c 'echo reads-$((6 * 7)); cat | tr a-z A-Z'", rb"reads-42")
type(b"typed\n")
type(CONTROL_D)
wait(rb"TYPED")
# The client, stopped twice in the middle of a message.
run(f"{sys.executable} {steady} {port} 1", rb"moved 2\r")
type(CONTROL_Z)
wait(rb"Stopped")
run("jobs; echo jobs-$((6 * 7))", rb"Stopped(?s:.*)jobs-42")
last = int(re.findall(rb"moved (\d+)\r", text)[-1])
type(b"fg\n")
wait(rb"moved %d\r" % (last + 2))
type(CONTROL_Z)
wait(rb"Stopped")
last = int(re.findall(rb"moved (\d+)\r", text)[-1])
type(b"bg\n")
wait(rb"moved %d\r" % (last + 20))
type(b"fg\n")
# The shell says which job it is, and then gives it the terminal: until then a key would be the shell's.
wait(re.escape(f"{steady} {port} 1".encode()))
last = int(re.findall(rb"moved (\d+)\r", text)[-1])
wait(rb"moved %d\r" % (last + 20))
type(CONTROL_C)
payload = int(wait(rb"payload (\d+)").group(1))
run("echo status-$?-", rb"status-130-")
type(b"exit 7\n")
end = time.monotonic() + 60
while more(end):
    pass
if shell.wait(60) != 7:
    sys.exit(f"exit status {shell.returncode}:\n{text.decode(errors='replace')}")
print("payload", payload)
