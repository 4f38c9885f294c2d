"""A user of its own for a confined process that root started.

The kernel bounds nobody's processes but root's own; and root's files are root's in whatever folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECUREBITS = 1, 2, 4, 28
_NO_SETUID_FIXUP = 0b1100  # and it cannot be taken back
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 24, 47, 2
_VERSION, _LAST = 0x20080522, 63
_KILL, _SETUID = 1 << 5, 1 << 7
READS_ALL = 1 << 1  # CAP_DAC_OVERRIDE
_FIRST_USER = 0x7000_0000  # of numbers that no system gives to people


def can_become() -> bool:
    """Whether root may become another user here, and end that user's processes."""
    return _has_all(_held(ctypes.CDLL(None, use_errno=True))[0]) and _is_there(user_of(own_pid()))


def own_pid() -> int:
    """Return this process's number as ``/proc`` has it: in a namespace of processes it has another beside."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self").readlink().name)
    return os.getpid()


def user_of(pid: int) -> int:
    """Return the user that a confined process of root's becomes, by its number outside of namespaces."""
    return _FIRST_USER + pid


def end_user(user: int) -> None:
    """Kill all processes of a user that a confined process became, by root.

    The kernel does so at once for all that there are. Those that fork and end again and again are among them;
    who looks for one after the other may miss these.

    Parameters
    ----------
    user : int
        Nothing happens where it is any other.
    """
    if user >= _FIRST_USER and os.getuid() == 0:
        command = [sys.executable, "-I", "-S", "-c", _END_USER, str(user)]
        subprocess.run(command, check=False, capture_output=True, timeout=30)


_END_USER = """
import os, signal, sys
user = int(sys.argv[1])
os.setresuid(user, user, user)
assert os.getresuid() == (user, user, user)
os.kill(-1, signal.SIGKILL)
"""


def become_ordinary(kept: int, own: bool, max_threads: int) -> None:
    """Have root be an ordinary user, with no capabilities but what is `kept`: opening all files, or nothing.

    Parameters
    ----------
    kept : int
        Bits of capabilities.
    own : bool
        Whether the process, and what it starts, becomes a user that has nothing else, so that limits count
        its processes. It stays root where its parent could not end it then, or there is no such user.
    max_threads : int
        That such a user may have.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    effective, permitted = _held(libc)
    for capability in range(_LAST + 1):
        if not kept >> capability & 1:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to all but root
    if own and os.getuid() == 0 and kept & permitted == kept and _has_all(effective):
        resource.setrlimit(resource.RLIMIT_NPROC, (max_threads, max_threads))
        _become(libc, user_of(own_pid()))
    low = kept & _held(libc)[1]  # of what it may have
    libc.capset(_header(), (ctypes.c_uint32 * 6)(low, low, low, 0, 0, 0))
    for capability in range(_LAST + 1):
        if low >> capability & 1 and os.getuid() != 0:  # programs that it starts have it too
            libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0)


def _has_all(effective: int) -> bool:
    return effective & (_KILL | _SETUID) == _KILL | _SETUID


def _is_there(user: int) -> bool:
    """Whether a namespace of users that this process is in has one."""
    with contextlib.suppress(OSError, ValueError):
        lines = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        return any(int(first) <= user < int(first) + int(num) for first, _, num in lines)
    return True  # a kernel without such namespaces


def _become(libc: ctypes.CDLL, user: int) -> None:
    # Capabilities stay as the user changes, in access() as well, by which compilers look for their parts.
    if libc.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0) != 0:
        return
    signal = ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(signal), 0, 0, 0)
    with contextlib.suppress(OSError):  # this namespace has no such user
        os.setresuid(user, user, user)
    # The kernel forgets both as the user changes.
    libc.prctl(_PR_SET_PDEATHSIG, signal.value, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _header() -> bytes:
    return struct.pack("Ii", _VERSION, 0)


def _held(libc: ctypes.CDLL) -> tuple[int, int]:
    """Return the capabilities that are in effect, and those that may be, as far as the first 32 go."""
    held = (ctypes.c_uint32 * 6)()
    if libc.capget(_header(), held) != 0:
        return 0, 0
    return held[0], held[1]
