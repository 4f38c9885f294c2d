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

# Linux: seccomp-bpf. By machine: audit architecture, numbers of io_uring_setup(), connect() and socket().
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 425, 42, 41), "aarch64": (0xC00000B7, 425, 203, 198)}
_X32_BIT = 0x40000000  # another table of numbers on x86_64
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data, of arguments the lower half
_AF_UNIX = 1
_NO_CONNECTION = 2  # a bit of SOCK_DGRAM and SOCK_RAW, and of neither SOCK_STREAM nor SOCK_SEQPACKET


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process that builds or measures is given of these variables: no tokens and the like."""
    return {name: value for name, value in environment.items() if name in _KEPT}


def confine(max_bytes: int | None = None, temporary: str | None = None, *, drives_gpu: bool = False) -> bool:
    """Confine this process and what it starts, for good.

    Parameters
    ----------
    max_bytes : int, optional
        Of address space.
    temporary : str, optional
        Folder for temporary files in place of the system's.
    drives_gpu : bool
        Whether local sockets may be made and listened on, which the driver of a GPU does when it begins. None
        can be connected, so that no service of this machine is reached. Files are not bounded then: a driver
        maps memory by some.

    Returns
    -------
    bool
        Whether the kernel keeps it from the network; the rest is always done.
    """
    for kind, limit in (
        (resource.RLIMIT_AS, max_bytes),
        (resource.RLIMIT_FSIZE, None if drives_gpu else _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        if limit is not None:
            with contextlib.suppress(ValueError, OSError):  # it is lower already
                resource.setrlimit(kind, (limit, limit))
    for name in set(os.environ) - set(kept_environment(os.environ)):
        del os.environ[name]
    if temporary is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = temporary
    return _leave_network(drives_gpu)


def _leave_network(allows_local: bool) -> bool:
    """Have socket() refused, to this thread and all that come after it; pipes and socket pairs still work."""
    calls = _SYSTEM_CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None:
        return False
    code = b"".join(struct.pack("HBBI", *step) for step in _filter(*calls, allows_local))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0) == 0)


def _filter(
    architecture: int, io_uring_setup: int, connect: int, socket_call: int, allows_local: bool
) -> list[tuple[int, int, int, int]]:
    """Instructions of classic BPF: operation, jumps if true and if false, operand."""
    # Of each comparison: whether what holds, and what does not, goes on (None) or is allowed.
    checks: list[tuple[int, int, bool | None, bool | None]] = [
        (_LOAD, _ARCH, None, None),
        (_EQUAL, architecture, None, False),
        (_LOAD, _NR, None, None),
        (_AT_LEAST, _X32_BIT, False, None),
        (_EQUAL, io_uring_setup, False, None),
    ]
    if allows_local:
        checks += [
            (_EQUAL, connect, False, None),
            (_EQUAL, socket_call, None, True),
            (_LOAD, _FIRST, None, None),
            (_EQUAL, _AF_UNIX, None, False),
            (_LOAD, _SECOND, None, None),
            (_ANY_BIT, _NO_CONNECTION, False, True),
        ]
    else:
        checks.append((_EQUAL, socket_call, False, True))

    def jump(at: int, verdict: bool | None) -> int:
        """Instructions to pass over: behind the checks stands what allows, and then what refuses."""
        return 0 if verdict is None else len(checks) - at - verdict

    code = [(op, jump(i, yes), jump(i, no), operand) for i, (op, operand, yes, no) in enumerate(checks)]
    return [*code, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
