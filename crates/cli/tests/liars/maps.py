"""maps.py COUNT [USER FOLDER]: maps so many pages, of which no two become one mapping, says `ready` on standard error, and stays until its
input ends. With a user and a folder: as that user, pages of a file there, whose path is as long as one can be."""
import ctypes
import mmap
import os
import sys

if len(sys.argv) > 2:
    user = int(sys.argv[2])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.chdir(sys.argv[3])
    for _ in range(15):
        os.mkdir("a" * 250)
        os.chdir("a" * 250)
    pages = os.open("pages", os.O_RDWR | os.O_CREAT)
else:
    pages = os.memfd_create("pages")
os.ftruncate(pages, 2 * mmap.PAGESIZE)
# Python's own mmap takes a descriptor for each.
map_page = ctypes.CDLL(None).mmap
map_page.restype = ctypes.c_void_p
map_page.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for n in range(int(sys.argv[1])):
    at = map_page(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, pages, mmap.PAGESIZE * (n % 2))
    assert at != ctypes.c_void_p(-1).value, n
print("ready", file=sys.stderr, flush=True)
sys.stdin.read()
