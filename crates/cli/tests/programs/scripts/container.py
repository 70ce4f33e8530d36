"""container.py PROGRAM ARGS...: runs a program under a seccomp filter that forbids what the usual profile of container
runtimes forbids to who has no special capabilities: EPERM, but ENOSYS for clone3 and for calls that are newer than it."""
import errno
import sys

from seccomp import (
    ALLOW, ERRNO, FIRST_ARGUMENT, IF_BITS, IF_EQUAL, IF_LESS_NOT, LOAD, MACHINE, NUMBER, RETURN, instruction, run_under,
)

# By name, as numbers on x86-64 and AArch64; None: not there.
FORBIDDEN = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "clock_settime": (227, 112),
    "create_module": (174, None), "delete_module": (176, 106), "fanotify_init": (300, 262),
    "finit_module": (313, 273), "get_kernel_syms": (177, None), "get_mempolicy": (239, 236),
    "init_module": (175, 105), "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219), "lookup_dcookie": (212, 18),
    "mbind": (237, 235), "migrate_pages": (256, 238), "mount": (165, 40), "move_pages": (279, 239),
    "nfsservctl": (180, 42), "open_by_handle_at": (304, 265), "perf_event_open": (298, 241), "pivot_root": (155, 41),
    "query_module": (178, None), "quotactl": (179, 60), "reboot": (169, 142), "request_key": (249, 218),
    "set_mempolicy": (238, 237), "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268),
    "settimeofday": (164, 170), "swapoff": (168, 225), "swapon": (167, 224), "sysfs": (139, None),
    "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97), "uselib": (134, None),
    "userfaultfd": (323, 282), "ustat": (136, None), "vhangup": (153, 58),
    # The same everywhere.
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "mount_setattr": (442, 442), "quotactl_fd": (443, 443), "set_mempolicy_home_node": (450, 450),
}
CLONE3, NEWER = 435, 451
WHICH = ("x86_64", "aarch64").index(MACHINE)
CLONE, SOCKET = ((56, 220)[WHICH], (41, 198)[WHICH])
# CLONE_NEW*, and AF_VSOCK.
NAMESPACES, VSOCK = 0x7E020000, 40

eperm = instruction(RETURN, ERRNO | errno.EPERM)
enosys = instruction(RETURN, ERRNO | errno.ENOSYS)
allow = instruction(RETURN, ALLOW)
numbers = [both[WHICH] for both in FORBIDDEN.values() if both[WHICH] is not None]
code = [
    instruction(LOAD, NUMBER),
    instruction(IF_EQUAL, CLONE3, 0, 1), enosys,
    instruction(IF_LESS_NOT, NEWER, 0, 1), enosys,
    instruction(IF_EQUAL, CLONE, 0, 4),
    instruction(LOAD, FIRST_ARGUMENT), instruction(IF_BITS, NAMESPACES, 0, 1), eperm, allow,
    instruction(IF_EQUAL, SOCKET, 0, 4),
    instruction(LOAD, FIRST_ARGUMENT), instruction(IF_EQUAL, VSOCK, 0, 1), eperm, allow,
]
code += [instruction(IF_EQUAL, number, len(numbers) - i) for i, number in enumerate(numbers)]
code += [allow, eperm]
run_under(code, sys.argv[1:])
