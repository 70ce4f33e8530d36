"""maps.py COUNT: maps so many pages, of which no two become one mapping, says `ready` on standard error, and stays until its input ends."""
import mmap
import os
import sys

pages = os.memfd_create("pages")
os.ftruncate(pages, 2 * mmap.PAGESIZE)
held = [mmap.mmap(pages, mmap.PAGESIZE, offset=mmap.PAGESIZE * (n % 2)) for n in range(int(sys.argv[1]))]
print("ready", file=sys.stderr, flush=True)
sys.stdin.read()
