"""What generated code may do where it is built and run: no network, bounded files, nobody's secrets.

Specs come from strangers. They are data, and the code that is generated from them reads and writes its
tensors only; this is for the day that one of those two is not true.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import sys
import tempfile
from collections.abc import Mapping

# What the compiler, the linker, Python and the thread pools need.
_KEPT = frozenset(
    {
        "CUDA_HOME",
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

# Linux: seccomp-bpf. Audit architecture, and the numbers of socket() and io_uring_setup(), by machine.
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 41, 425), "aarch64": (0xC00000B7, 198, 425)}
_X32_BIT = 0x40000000  # another table of numbers on x86_64
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NR, _ARCH = 0, 4  # offsets in struct seccomp_data


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process that builds or measures is given of these variables: no tokens and the like."""
    return {name: value for name, value in environment.items() if name in _KEPT}


def confine(max_bytes: int | None = None, temporary: str | None = None) -> bool:
    """Confine this process and what it starts, for good.

    Parameters
    ----------
    max_bytes : int, optional
        Of address space.
    temporary : str, optional
        Folder for temporary files in place of the system's.

    Returns
    -------
    bool
        Whether the kernel keeps it from the network; the rest is always done.
    """
    for kind, limit in (
        (resource.RLIMIT_AS, max_bytes),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        if limit is not None:
            with contextlib.suppress(ValueError, OSError):  # it is lower already
                resource.setrlimit(kind, (limit, limit))
    for name in set(os.environ) - set(kept_environment(os.environ)):
        del os.environ[name]
    if temporary is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = temporary
    return _leave_network()


def _leave_network() -> bool:
    """Have socket() refused, to this thread and all that come after it; pipes and socket pairs still work."""
    calls = _SYSTEM_CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None:
        return False
    code = b"".join(struct.pack("HBBI", *step) for step in _filter(*calls))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0) == 0)


def _filter(architecture: int, socket_call: int, io_uring_setup: int) -> list[tuple[int, int, int, int]]:
    """Instructions of classic BPF: operation, jumps if true and if false, operand."""
    return [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 0, 5, architecture),  # another one: refused
        (_LOAD, 0, 0, _NR),
        (_AT_LEAST, 3, 0, _X32_BIT),
        (_EQUAL, 2, 0, io_uring_setup),
        (_EQUAL, 1, 0, socket_call),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
