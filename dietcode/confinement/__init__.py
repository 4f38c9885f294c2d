"""What generated code may do where it is built and run: no network, bounded files, nobody's secrets.

Specs come from strangers. They are data, and the code that is generated from them reads and writes its
tensors only; this is for the day that one of those two is not true.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dietcode.confinement import landlock, places, system_calls, users
from dietcode.confinement.enclosure import can_enclose, can_separate, enclose

# What the compiler, the linker, Python and the thread pools need.
_KEPT = frozenset(
    {
        "CUDA_DEVICE_ORDER",
        "CUDA_HOME",
        "CUDA_VISIBLE_DEVICES",
        "CXX",
        "DIETCODE_CACHE",
        "HOME",
        "LANG",
        "LC_ALL",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "PYTHONHASHSEED",
        "PYTHONPATH",
        "PYTHONWARNINGS",
        "TMPDIR",
        "TVM_BIND_THREADS",
        "TVM_LIBRARY_PATH",
        "TVM_NUM_THREADS",
        "TZ",
        "VIRTUAL_ENV",
        "XDG_CACHE_HOME",
    }
)
MEMORY_BYTES = 16 << 30  # of address space, for what builds and measures
_FILE_BYTES = 1 << 30

_CPU_SECS = 86_400  # of each core: a backstop, since what calls a process bounds each call
_MAX_THREADS = 4096  # of root's; of another user, beside those that there are when a process is confined
_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True)
class Confinement:
    """What the kernel holds a process to.

    Attributes
    ----------
    calls : bool
        No network, no other processes' memory, no namespaces, nothing that only administrators need.
    files : bool
        No file but those that building and measuring need.
    threads : bool
        No more than 4096 threads and processes.
    processes : bool
        What a compiler starts sends no signals to others, and all of it ends with the compiler.
    """

    calls: bool
    files: bool
    threads: bool
    processes: bool

    @property
    def is_enough(self) -> bool:
        """Whether those who are not trusted may have their specs built and measured."""
        return self.calls and self.files and self.threads

    def missing(self) -> tuple[str, ...]:
        """Return what it does not hold it to, a line each."""
        lines = (
            (self.calls, "system calls are not filtered (seccomp): the network can be reached"),
            (
                self.files,
                "files are not closed (Landlock): what the server's user may read and write is open",
            ),
            (
                self.threads,
                "threads and processes are not bounded: root's are not, and root becomes no other user here "
                "(CAP_SETUID and CAP_KILL, and Landlock)",
            ),
            (
                self.processes,
                "a compiler may send signals to processes of the server's user, and what it has started may "
                "run on for a while: there are no namespaces of processes for this user, and Landlock holds "
                "signals back from Linux 6.12 on alone",
            ),
        )
        return tuple(line for holds, line in lines if not holds)


def possible() -> Confinement:
    """Return what this kernel, and a container around this process, can give."""
    has_files = landlock.version() > 0
    becomes = sys.platform == "linux" and os.getuid() == 0 and has_files and users.can_become()
    bounded = sys.platform == "linux" and (os.getuid() != 0 or becomes)
    apart = becomes or landlock.can_keep_signals() or can_separate()
    return Confinement(system_calls.can_filter(), has_files, bounded, apart)


def readable_folders() -> list[Path]:
    """Return what each confined process may read, links resolved."""
    return [path.resolve() for path in places.readable(drives_gpu=False)]


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process that builds or measures is given of these variables: no tokens and the like."""
    return {name: value for name, value in environment.items() if name in _KEPT}


def confine(
    max_bytes: int | None = None,
    temporary: str | None = None,
    *,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    drives_gpu: bool = False,
    starts_processes: bool = True,
    max_cpu_secs: int | None = None,
    max_file_bytes: int | None = _FILE_BYTES,
) -> Confinement:
    """Confine this thread and what it starts, for good; call it before there are others.

    Parameters
    ----------
    max_bytes : int, optional
        Of address space.
    temporary : str, optional
        Folder for temporary files in place of the system's.
    readable, writable : sequence of Path
        Folders and files that can be read, and written too, beside `temporary` and what every build needs.
    drives_gpu : bool
        Whether local sockets may be made and listened on, which the driver of a GPU does when it begins. None
        can be connected, so that no service of this machine is reached. Files are not bounded then: a driver
        maps memory by some; and root's process stays root's.
    starts_processes : bool
        Whether it may start other processes, as a compiler does; threads it always may. It goes on in a child
        of this process then, with which all of them end.
    max_cpu_secs : int, optional
        Seconds on a CPU of this process, and of each that it starts; by default a day of each core, since
        what answers many calls is bounded at each of them.
    max_file_bytes : int, optional
        Of each file that it writes; None: not bounded.

    Returns
    -------
    Confinement
        What the kernel does of it; limits and variables are always set.

    Raises
    ------
    OSError
        It may start processes, and there may be no more of them.
    """
    apart = starts_processes and can_enclose() and enclose(own_namespace=not drives_gpu)
    limits = [
        (resource.RLIMIT_AS, max_bytes),
        (resource.RLIMIT_FSIZE, None if drives_gpu else max_file_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, max_cpu_secs or _CPU_SECS * (os.cpu_count() or 1)),
    ]
    if sys.platform == "linux" and os.getuid() != 0:  # the kernel counts none of root's
        limits.append((resource.RLIMIT_NPROC, _num_threads() + _MAX_THREADS))
    for kind, limit in limits:
        if limit is not None:
            with contextlib.suppress(ValueError, OSError):  # it is lower already
                resource.setrlimit(kind, (limit, limit))
    for name in set(os.environ) - set(kept_environment(os.environ)):
        del os.environ[name]
    os.environ["LOGNAME"] = "dietcode"  # the user of a process that is apart has no name, which some ask for
    if temporary is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = temporary
    if sys.platform != "linux":
        return Confinement(False, False, False, False)
    to_read = [*places.readable(drives_gpu), *readable]
    to_write = [*places.writable(drives_gpu), *writable, *([] if temporary is None else [Path(temporary)])]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return Confinement(False, False, os.getuid() != 0, apart)
    has_files = landlock.keep_only(to_read, to_write)
    kept = users.READS_ALL if has_files and os.getuid() == 0 else 0
    own_user = os.getuid() == 0
    users.become_ordinary(kept, own=has_files and not drives_gpu, max_threads=_MAX_THREADS)
    own_user = own_user and os.getuid() != 0
    calls = system_calls.refuse_calls(drives_gpu, starts_processes)
    apart = apart or own_user or (calls and not starts_processes)
    return Confinement(calls, has_files, os.getuid() != 0, apart)


def _num_threads() -> int:
    """Return how many this user's processes have; those of which the kernel says nothing are left out."""
    num, user = 0, os.getuid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if entry.stat().st_uid == user:
                    num += int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[17])
    return num
