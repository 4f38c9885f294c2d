"""A confined process that starts others, and the one that keeps it: nothing that it started outlives it.

The process goes on in a child. Where the kernel makes a namespace of processes for it, the child is the
first of one, and the kernel ends all others with it; an ordinary user needs a namespace of users too.
Elsewhere what loses its parent becomes the keeper's, which ends it: all at once where the kernel holds the
keeper's signals back from everybody else (Landlock, since Linux 6.12), and one after the other where not.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from dietcode.confinement import landlock
from dietcode.confinement.users import end_user, own_pid, user_of
from dietcode.lifeline import adopt_orphans, die_with_parent

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 2, 38
_NEW_USER, _NEW_PROCESSES = 0x10000000, 0x20000000
_END_SECS = 5.0
_TOLD = {signal.SIGTERM, signal.SIGCHLD}


def enclose(own_namespace: bool = True) -> bool:
    """Go on in a child, which ends with this process, and with which ends all that it has started.

    This process waits for it, and ends as it does. Call it while there are no other threads.

    Parameters
    ----------
    own_namespace : bool
        Whether it may be one of processes: in it the numbers of processes begin at 1, and its parent's is 0.

    Returns
    -------
    bool
        Whether the kernel keeps signals of the child, and of all that it starts, from other processes, and
        ends all of them at once.

    Raises
    ------
    OSError
        There may be no more processes.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = _death_signal(libc)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody is waited for
    separate, apart = own_namespace and _new_namespace(libc), False
    if separate:
        libc.prctl(_PR_SET_PDEATHSIG, before, 0, 0, 0)  # a new namespace of users may forget it
    else:
        adopt_orphans()
        apart = _keep_signals(libc)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD)
    alive, held = os.pipe()
    child = os.fork()
    if child:
        if not separate and before:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # so that it ends the others first
        _keep(child, held, apart)
    os.close(held)
    die_with_parent()
    os.set_blocking(alive, False)
    with contextlib.suppress(BlockingIOError):  # the keeper lives
        os.read(alive, 1)
        os._exit(1)
    os.close(alive)
    signal.signal(signal.SIGCHLD, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return separate or apart


def _death_signal(libc: ctypes.CDLL) -> int:
    found = ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(found), 0, 0, 0)
    return found.value


def _new_namespace(libc: ctypes.CDLL) -> bool:
    """Have the next child be the first of a namespace; without the right to, this process stays as it is."""
    if os.getuid() == 0:
        return bool(libc.unshare(_NEW_PROCESSES) == 0)
    trial = os.fork()  # there is no way back from half of it
    if trial == 0:
        os._exit(0 if _leave(libc) else 1)
    return os.waitpid(trial, 0)[1] == 0 and _leave(libc)


def _leave(libc: ctypes.CDLL) -> bool:
    """Make a namespace of users that has this one alone, under the same number, and one of processes."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_USER | _NEW_PROCESSES) != 0:
        return False
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", name).write_text(text)
    except OSError:
        return False
    return True


def _keep_signals(libc: ctypes.CDLL) -> bool:
    """Have signals of this process reach only what it starts, and see that they do."""
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or not landlock.keep_signals():
        return False
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    return False


def _keep(child: int, held: int, apart: bool) -> NoReturn:
    """Wait for the child, or to be told to end; then end what is left of it, and this process as it did.

    Parameters
    ----------
    apart : bool
        Signals of this process reach only what it has started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child's to obey
    os.closerange(0, held)
    os.closerange(held + 1, os.sysconf("SC_OPEN_MAX"))
    status = None
    while status is None and signal.sigwait(_TOLD) != signal.SIGTERM:
        status = _reaped().get(child)
    if status is None:  # else its number may be another's by now
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
    _end_all(user_of(child), apart)
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(1 if status is None else os.waitstatus_to_exitcode(status))


def _reaped() -> dict[int, int]:
    """Return the statuses of children that have ended."""
    found = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found[ended[0]] = ended[1]
    return found


def _end_all(user: int, apart: bool) -> None:
    """Kill what the child has started; orphans are this process's children by now.

    Parameters
    ----------
    user : int
        Whom a child of root's became.
    apart : bool
        Signals of this process reach nothing else: the kernel sends one to all that there are at once, so
        that none of them starts another meanwhile.
    """
    until = time.monotonic() + _END_SECS
    while (below := _children()) and time.monotonic() < until:
        if apart:
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
        else:
            end_user(user)
        for pid in below:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _reaped()


def _children() -> list[int]:
    """Return the children of this process, as soon as can be: some fork and end again and again."""
    own = own_pid()
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]
    found = []
    for entry in os.scandir("/proc"):  # of a kernel that keeps no such list
        with contextlib.suppress(OSError, IndexError):
            parent = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1]
            if entry.name.isdigit() and int(parent) == own:
                found.append(int(entry.name))
    return found


def can_enclose() -> bool:
    """Whether this is a system where `enclose` can be called."""
    return sys.platform == "linux"


@functools.cache
def can_separate() -> bool:
    """Whether `enclose` can make a namespace of processes here; a process of its own tries it."""
    kinds = _NEW_PROCESSES if os.getuid() == 0 else _NEW_USER | _NEW_PROCESSES
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare({kinds}) != 0)"
    command = [sys.executable, "-I", "-S", "-c", code]
    return can_enclose() and subprocess.run(command, check=False, capture_output=True).returncode == 0
