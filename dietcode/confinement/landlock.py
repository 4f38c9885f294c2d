"""Landlock: a process of Linux that gives up all files but those below some paths, for good.

It also gives up TCP; the memory, variables and descriptors of processes that it did not start, as their files
below ``/proc`` need what ptrace() needs; and, where the kernel can, signals and abstract sockets to them.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every machine
_GIVE_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL = (1 << 13) - 1  # of the first version: up to making symbolic links
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices
_TCP = 0b11  # bind and connect, since version 4
_SCOPES = 0b11  # abstract sockets and signals, since version 6
_SIGNALS = 0b10


def version() -> int:
    """Return the version that the kernel has; 0 where it has none, or a container forbids it."""
    if sys.platform != "linux":
        return 0
    found: int = ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, _GIVE_VERSION)
    return max(found, 0)


def keep_only(readable: Iterable[Path], writable: Iterable[Path]) -> bool:
    """Give up all other files; the process must have given up new privileges before.

    Parameters
    ----------
    readable : iterable of Path
        Files and folders that may be read and executed, with all below them; those that are not there are
        passed over.
    writable : iterable of Path
        That may be written too.

    Returns
    -------
    bool
        Whether the kernel does it.
    """
    known = version()
    if not known:
        return False
    handled = _ALL | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    # A kernel takes a shorter record for an older version.
    asked = struct.pack("QQQ", handled, _TCP, _SCOPES)[: 24 if known >= 6 else 16 if known >= 4 else 8]
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = libc.syscall(_CREATE_RULESET, asked, ctypes.c_size_t(len(asked)), 0)
    if ruleset < 0:
        return False
    try:
        for path in dict.fromkeys(readable):
            _allow(libc, ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
        for path in dict.fromkeys(writable):
            _allow(libc, ruleset, path, handled & ~_MAKE_DEVICES)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def can_keep_signals() -> bool:
    """Whether `keep_signals`, and what gives up files, holds signals back on this kernel."""
    return version() >= 6


def keep_signals() -> bool:
    """Give up signals to all but this process and those that it starts from now on; everything else stays.

    The process must have given up new privileges before.

    Returns
    -------
    bool
        Whether the kernel does it.
    """
    if not can_keep_signals():
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    asked = struct.pack("QQQ", 0, 0, _SIGNALS)
    ruleset = libc.syscall(_CREATE_RULESET, asked, ctypes.c_size_t(len(asked)), 0)
    if ruleset < 0:
        return False
    try:
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = struct.pack("=Qi", rights if path.is_dir() else rights & _OF_FILES, descriptor)
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
