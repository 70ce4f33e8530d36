"""forbid.py CALL PROGRAM ARGS...: runs a program under a seccomp filter that answers EPERM to one system call,
as containers do: memfd_create, eventfd2, unix-socket or netlink-socket; or that kills for what takes a descriptor table
of one's own: apart."""
import errno
import sys

from seccomp import (
    ALLOW, ERRNO, FIRST_ARGUMENT, IF_EQUAL, KILL, LOAD, MACHINE, NUMBER, RETURN, instruction, run_under,
)

NUMBERS = {
    "x86_64": {"memfd_create": 319, "eventfd2": 290, "socket": 41},
    "aarch64": {"memfd_create": 279, "eventfd2": 19, "socket": 198},
}[MACHINE]
FAMILIES = {"unix-socket": 1, "netlink-socket": 16}
# Of all machines: pidfd_open, close_range, pidfd_getfd.
APART = [434, 436, 438]

call = sys.argv[1]
deny = instruction(RETURN, ERRNO | errno.EPERM)
allow = instruction(RETURN, ALLOW)
if call == "apart":
    code = [instruction(LOAD, NUMBER)]
    for number in APART:
        code += [instruction(IF_EQUAL, number, 0, 1), instruction(RETURN, KILL)]
    code.append(allow)
elif call in FAMILIES:
    code = [
        instruction(LOAD, NUMBER), instruction(IF_EQUAL, NUMBERS["socket"], 0, 3),
        instruction(LOAD, FIRST_ARGUMENT), instruction(IF_EQUAL, FAMILIES[call], 0, 1), deny, allow,
    ]
else:
    code = [instruction(LOAD, NUMBER), instruction(IF_EQUAL, NUMBERS[call], 0, 1), deny, allow]
run_under(code, sys.argv[2:])
