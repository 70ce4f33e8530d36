"""Seccomp filters made of instructions: what forbid.py and container.py share."""
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


def run_under(code, command):
    """Runs a program under the filter; exits with status 77 where there can be none."""
    text = ctypes.create_string_buffer(b"".join(code))
    program = Program(len(code), ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))):
        if libc.prctl(*arguments) != 0:
            print("prctl:", os.strerror(ctypes.get_errno()), file=sys.stderr)
            sys.exit(77)
    os.execvp(command[0], command)
