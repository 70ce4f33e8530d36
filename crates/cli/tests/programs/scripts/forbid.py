"""forbid.py CALL PROGRAM ARGS...: runs a program under a seccomp filter that answers EPERM to one system call,
as containers do: memfd_create, eventfd2, unix-socket or netlink-socket."""
import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"memfd_create": 319, "eventfd2": 290, "socket": 41},
    "aarch64": {"memfd_create": 279, "eventfd2": 19, "socket": 198},
}[platform.machine()]
FAMILIES = {"unix-socket": 1, "netlink-socket": 16}
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def instruction(code, k, yes=0, no=0):
    return struct.pack("=HBBI", code, yes, no, k)


call = sys.argv[1]
deny = instruction(RETURN, ERRNO | errno.EPERM)
allow = instruction(RETURN, ALLOW)
if call in FAMILIES:
    # struct seccomp_data: number at 0, first argument at 16.
    code = [
        instruction(LOAD, 0), instruction(IF_EQUAL, NUMBERS["socket"], 0, 3),
        instruction(LOAD, 16), instruction(IF_EQUAL, FAMILIES[call], 0, 1), deny, allow,
    ]
else:
    code = [instruction(LOAD, 0), instruction(IF_EQUAL, NUMBERS[call], 0, 1), deny, allow]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


text = ctypes.create_string_buffer(b"".join(code))
program = Program(len(code), ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))):
    if libc.prctl(*arguments) != 0:
        print("prctl:", os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(77)
os.execvp(sys.argv[2], sys.argv[2:])
