"""What a process that has secrets hides from others of the same user: its memory and its variables."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

from dietcode.confinement import kept_environment

_PR_SET_DUMPABLE = 4


def hide_secrets() -> None:
    """Close this process to others that are not root's, and wipe the variables that it was started with.

    Others read them below ``/proc``. This process finds them where it did, and its children
    inherit them as before.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    started_with = _addresses(libc)
    for name in set(os.environ) - set(kept_environment(os.environ)):
        with contextlib.suppress(OSError, ValueError):
            os.environ[name] = os.environ[name]  # elsewhere in memory
    in_use = set(_addresses(libc).values())
    for entry, address in started_with.items():
        begin, _, value = entry.partition(b"=")
        if value and address not in in_use and not kept_environment({os.fsdecode(begin): ""}):
            ctypes.memset(address + len(begin) + 1, 0, len(value))


def _addresses(libc: ctypes.CDLL) -> dict[bytes, int]:
    """Return the address of each ``NAME=VALUE`` that C has."""
    found: dict[bytes, int] = {}
    environ = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
    i = 0
    while environ and environ[i]:
        address = int(environ[i])
        found[ctypes.string_at(address)] = address
        i += 1
    return found
