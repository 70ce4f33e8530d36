"""take.py PID DESCRIPTOR [later]: takes a copy of a descriptor of a process, at a line of its input or at once, and says so."""
import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
process = os.pidfd_open(int(sys.argv[1]))
if sys.argv[3:] == ["later"]:
    print("ready", flush=True)
    sys.stdin.readline()
taken = libc.pidfd_getfd(process, int(sys.argv[2]), 0)
print("taken" if taken >= 0 else os.strerror(ctypes.get_errno()), flush=True)
