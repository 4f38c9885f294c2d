"""Files of a folder that a confined process may write to: what lies there may be a link, or no file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Literal

_FLAGS = {"rb": os.O_RDONLY, "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT}


def open_left(path: Path, mode: Literal["rb", "ab"] = "rb") -> BinaryIO:
    """Open a file, to read it or to add to it, but nothing that a link names, and nothing without an end.

    Raises
    ------
    OSError
        It is not there, or is no file: a link, a pipe, a device.
    """
    descriptor = os.open(path, _FLAGS[mode] | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no file of its own", str(path))
    return os.fdopen(descriptor, mode)
