"""Seccomp filters made of instructions: what forbid.py, container.py and filtered_later.py share."""
import ctypes
import os
import platform
import struct
import sys

MACHINE = platform.machine()
LOAD, IF_EQUAL, IF_LESS_NOT, IF_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
# struct seccomp_data: number at 0, first argument at 16.
NUMBER, FIRST_ARGUMENT = 0, 16
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def instruction(code, k, yes=0, no=0):
    return struct.pack("=HBBI", code, yes, no, k)


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


# Of all machines: pidfd_open, close_range, pidfd_getfd.
APART = [434, 436, 438]


def killing(numbers):
    """A filter that kills for these calls."""
    code = [instruction(LOAD, NUMBER)]
    for number in numbers:
        code += [instruction(IF_EQUAL, number, 0, 1), instruction(RETURN, KILL)]
    return [*code, instruction(RETURN, ALLOW)]


def install(code, libc):
    """From now on this process is under the filter; exits with status 77 where there can be none."""
    text = ctypes.create_string_buffer(b"".join(code))
    program = Program(len(code), ctypes.addressof(text))
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))):
        if libc.prctl(*arguments) != 0:
            print("prctl:", os.strerror(ctypes.get_errno()), file=sys.stderr)
            sys.exit(77)


def run_under(code, command):
    """Runs a program under the filter."""
    install(code, ctypes.CDLL(None, use_errno=True))
    os.execvp(command[0], command)
