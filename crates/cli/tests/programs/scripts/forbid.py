"""forbid.py CALL PROGRAM ARGS...: runs a program under a seccomp filter that answers EPERM to one system call,
as containers do: memfd_create, eventfd2, unix-socket or netlink-socket; or that kills for what takes a descriptor table
of one's own: apart; or for that, and for what takes a thread: threads."""
import errno
import sys

from seccomp import (
    ALLOW, APART, ERRNO, FIRST_ARGUMENT, IF_EQUAL, LOAD, MACHINE, NUMBER, RETURN, instruction, killing, run_under,
)

NUMBERS = {
    "x86_64": {"memfd_create": 319, "eventfd2": 290, "socket": 41},
    "aarch64": {"memfd_create": 279, "eventfd2": 19, "socket": 198},
}[MACHINE]
FAMILIES = {"unix-socket": 1, "netlink-socket": 16}
# sched_yield, socketpair, clone, exit, tgkill.
THREADS = {"x86_64": [24, 53, 56, 60, 234], "aarch64": [124, 199, 220, 93, 131]}[MACHINE]

call = sys.argv[1]
deny = instruction(RETURN, ERRNO | errno.EPERM)
allow = instruction(RETURN, ALLOW)
if call == "apart":
    code = killing(APART)
elif call == "threads":
    code = killing(APART + THREADS)
elif call in FAMILIES:
    code = [
        instruction(LOAD, NUMBER), instruction(IF_EQUAL, NUMBERS["socket"], 0, 3),
        instruction(LOAD, FIRST_ARGUMENT), instruction(IF_EQUAL, FAMILIES[call], 0, 1), deny, allow,
    ]
else:
    code = [instruction(LOAD, NUMBER), instruction(IF_EQUAL, NUMBERS[call], 0, 1), deny, allow]
run_under(code, sys.argv[2:])
