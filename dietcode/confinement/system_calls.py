"""The system calls that a confined process may make: a filter of seccomp, as a program of classic BPF.

Allowed are the calls up to a number, less those that no compiler, thread pool or driver needs: a call that a
newer kernel brings is not there for a confined process.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence

# By machine: audit architecture; numbers on x86_64 and on aarch64 are the columns of the tables below.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_SOCKET, _SOCKETPAIR, _CONNECT = (41, 198), (53, 199), (42, 203)
_CLONE, _CLONE3, _PRLIMIT, _PRCTL = (56, 220), (435, 435), (302, 261), (157, 167)
_FORKS = ((57, None), (58, None))  # fork() and vfork()
_FCNTL, _IOCTL = (72, 25), (16, 29)
# Whose first argument is a process: kill(), tgkill(), rt_sigqueueinfo(), rt_tgsigqueueinfo(). The others,
# tkill() and pidfd_send_signal(), name a thread or a descriptor.
_SIGNALS = ((62, 129), (234, 131), (129, 138), (297, 240))
_OTHER_SIGNALS = ((200, 130), (424, 424))
_LAST = 462  # mseal(), of Linux 6.10
_X32_BIT = 0x40000000  # another table of numbers on x86_64
_REFUSED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

_PR_SET_SECCOMP, _PR_GET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 21, 2
_ERRNO = 0x00050000
_EACCES, _ENOSYS = 13, 38
_VERDICTS = {"allow": 0x7FFF0000, "refuse": _ERRNO | _EACCES, "unknown": _ERRNO | _ENOSYS}
_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_NR, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data, of arguments the lower half
_AF_UNIX = 1
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_NO_CONNECTION = 2  # a bit of SOCK_DGRAM and SOCK_RAW, and of neither SOCK_STREAM nor SOCK_SEQPACKET
# Who gets a signal when a descriptor is ready, and which: F_SETOWN, F_SETOWN_EX, F_SETSIG; FIOSETOWN and
# SIOCSPGRP. What is typed at a terminal, as if it had been: TIOCSTI, TIOCLINUX.
_OWNERS = (8, 15, 10)
_CONTROLS = (0x8901, 0x8902, 0x5412, 0x541C)
_OF_THREAD = 0x00010000  # CLONE_THREAD
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS and all others but CLONE_NEWTIME, which clone() does not take

# A step: operation, operand, where it goes on if that holds, and if not; a name is a verdict or a label.
_Step = tuple[int, int, str, str]


def can_filter() -> bool:
    """Whether this kernel filters system calls, and this machine's numbers are known."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0)) >= 0


def refuse_calls(allows_local: bool, allows_processes: bool = True) -> bool:
    """Have the kernel refuse them to this thread and all that come after it; pipes still work.

    The process must have given up new privileges before.

    Parameters
    ----------
    allows_local : bool
        Whether local sockets may be made, and none of them connected.
    allows_processes : bool
        Whether other processes may be started, and be sent signals; threads always may.

    Returns
    -------
    bool
        Whether it does.
    """
    if not can_filter():
        return False
    code = b"".join(
        struct.pack("HBBI", *step) for step in _assembled(_program(allows_local, allows_processes))
    )
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0) == 0)


def _program(allows_local: bool, allows_processes: bool) -> list[tuple[str, _Step]]:
    """Steps with their labels; an empty name of where one goes on is the next step."""
    architecture, column = _MACHINES[os.uname().machine]
    steps: list[tuple[str, _Step]] = [
        ("", (_LOAD, _ARCH, "", "")),
        ("", (_EQUAL, architecture, "", "refuse")),
        ("", (_LOAD, _NR, "", "")),
        ("", (_AT_LEAST, _X32_BIT, "refuse", "")),
        ("", (_ABOVE, _LAST, "unknown", "")),
        # Its flags are in memory, where no filter sees them; libc takes clone() where it is not there.
        ("", (_EQUAL, _CLONE3[column], "unknown", "")),
        ("", (_EQUAL, _CLONE[column], "clone", "")),
        ("", (_EQUAL, _PRLIMIT[column], "prlimit", "")),
        ("", (_EQUAL, _PRCTL[column], "prctl", "")),
        ("", (_EQUAL, _SOCKETPAIR[column], "pair", "")),
        ("", (_EQUAL, _SOCKET[column], "socket" if allows_local else "refuse", "")),
        ("", (_EQUAL, _CONNECT[column], "refuse", "")),
        ("", (_EQUAL, _FCNTL[column], "fcntl", "")),
        ("", (_EQUAL, _IOCTL[column], "ioctl", "")),
    ]
    if not allows_processes:
        steps += [("", (_EQUAL, numbers[column], "signal", "")) for numbers in _SIGNALS]
    calls = [*_REFUSED.values(), *(() if allows_processes else (*_FORKS, *_OTHER_SIGNALS))]
    refused = [numbers[column] for numbers in calls]
    steps += [("", (_EQUAL, number, "refuse", "")) for number in refused if number is not None]
    return [
        *steps,
        ("", (_EQUAL, 0, "allow", "allow")),
        ("clone", (_LOAD, _FIRST, "", "")),
        ("", (_ANY_BIT, _NEW_NAMESPACES, "refuse", "allow" if allows_processes else "")),
        ("", (_ANY_BIT, _OF_THREAD, "allow", "refuse")),
        ("prlimit", (_LOAD, _FIRST, "", "")),
        ("", (_EQUAL, 0, "allow", "refuse")),  # of this process alone
        ("signal", (_LOAD, _FIRST, "", "")),
        ("", (_EQUAL, os.getpid(), "allow", "refuse")),
        ("fcntl", (_LOAD, _SECOND, "", "")),
        *(("", (_EQUAL, number, "refuse", "")) for number in _OWNERS),
        ("", (_EQUAL, 0, "allow", "allow")),
        ("ioctl", (_LOAD, _SECOND, "", "")),
        *(("", (_EQUAL, number, "refuse", "")) for number in _CONTROLS),
        ("", (_EQUAL, 0, "allow", "allow")),
        # To end with its parent is not taken back.
        ("prctl", (_LOAD, _FIRST, "", "")),
        ("", (_EQUAL, _PR_SET_PDEATHSIG, "", "allow")),
        ("", (_LOAD, _SECOND, "", "")),
        ("", (_EQUAL, _SIGKILL, "allow", "refuse")),
        # A pair that is not connected for good could send to any local socket.
        ("pair", (_LOAD, _SECOND, "", "")),
        ("", (_ANY_BIT, _NO_CONNECTION, "refuse", "allow")),
        ("socket", (_LOAD, _FIRST, "", "")),
        ("", (_EQUAL, _AF_UNIX, "", "refuse")),
        ("", (_LOAD, _SECOND, "", "")),
        ("", (_ANY_BIT, _NO_CONNECTION, "refuse", "allow")),
    ]


def _assembled(steps: Sequence[tuple[str, _Step]]) -> list[tuple[int, int, int, int]]:
    """Instructions of classic BPF: operation, jumps if true and if false, operand; the verdicts come last."""
    places = {label: i for i, (label, _) in enumerate(steps) if label}
    places |= {verdict: len(steps) + i for i, verdict in enumerate(_VERDICTS)}

    def jump(at: int, to: str) -> int:
        return places[to] - at - 1 if to else 0

    code = [(op, jump(i, yes), jump(i, no), operand) for i, (_, (op, operand, yes, no)) in enumerate(steps)]
    return [*code, *((_RETURN, 0, 0, value) for value in _VERDICTS.values())]
