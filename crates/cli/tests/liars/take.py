"""take.py PID DESCRIPTOR: takes a copy of a descriptor of a process, and says so."""
import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
process = os.pidfd_open(int(sys.argv[1]))
taken = libc.pidfd_getfd(process, int(sys.argv[2]), 0)
print("taken" if taken >= 0 else os.strerror(ctypes.get_errno()), flush=True)
