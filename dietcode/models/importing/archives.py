"""Sizes that a ZIP archive declares, compared with its own before anything in it is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO

from dietcode.errors import ModelError

MAX_RATIO = 16  # PyTorch stores what it writes as it is, and an archive within one counts twice
_FREE_BYTES = 100 << 20  # of declarations in a small file
_MAX_DEPTH = 4
_ARCHIVE = b"PK\x03\x04"


def check_archive(path: Path) -> None:
    """Refuse an archive that unpacks to many times its size; any other file passes.

    Raises
    ------
    ModelError
        Names both sizes.
    """
    num_bytes = path.stat().st_size
    most = _FREE_BYTES + MAX_RATIO * num_bytes
    try:
        declared = _declared_bytes(path, most, _MAX_DEPTH)
    except (zipfile.BadZipFile, RuntimeError, OSError, EOFError, ValueError):
        return  # no archive, or a damaged one: the reader says why
    if declared > most:
        raise ModelError(
            f"{path}: {num_bytes} bytes that unpack to {declared} or more; allowed: {MAX_RATIO} times its "
            f"size and {_FREE_BYTES >> 20} MiB; write the file again where it comes from"
        )


def _declared_bytes(file: Path | IO[bytes], most: int, depth: int) -> int:
    """Return the bytes of all entries, and of those of archives among them, as far as they are allowed."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        for entry in entries:
            if total > most or depth == 0:
                break
            with archive.open(entry) as stream:
                if stream.read(len(_ARCHIVE)) == _ARCHIVE and stream.seekable():
                    stream.seek(0)
                    total += _declared_bytes(stream, most - total, depth - 1)
    return total
