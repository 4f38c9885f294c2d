"""``python -m dietcode.confinement.read MODULE PATH ARGUMENT…``: what reads a file that may hold code.

A file of PyTorch's may: its pickles and expressions are run as it is read. So the module is imported and run
where it can read nothing else, has no network, starts no process, and writes to ``$TMPDIR`` alone.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from dietcode.confinement import MEMORY_BYTES, confine
from dietcode.lean import collect_seldom

_COPIES = 8  # of a file's bytes, in memory and in what is written
_READ_SECS = 900.0
_BYTES_PER_SEC = 10 << 20  # beyond that


def main() -> None:
    """Confine this process, then run the module as its program."""
    module, path, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    collect_seldom()
    has_gpu = any(Path("/dev").glob("nvidia*"))  # tensors of a file may be on one
    num_bytes = size_of(Path(path))
    most = most_bytes(num_bytes)
    confine(
        max_bytes=None if has_gpu else most,
        temporary=os.environ["TMPDIR"],
        readable=[Path(path)],
        drives_gpu=has_gpu,
        starts_processes=False,
        max_cpu_secs=round(most_secs(num_bytes)) * (os.cpu_count() or 1),
        max_file_bytes=most,
    )
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def most_bytes(num_bytes: int) -> int:
    """Return how much memory reading a file of so many bytes may take, and each file that is written."""
    return MEMORY_BYTES + _COPIES * num_bytes


def most_secs(num_bytes: int) -> float:
    """Return how long reading a file of so many bytes may take."""
    return _READ_SECS + num_bytes / _BYTES_PER_SEC


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of the files of a folder."""
    files = [path] if path.is_file() else [one for one in path.iterdir() if one.is_file()]
    return sum(one.stat().st_size for one in files)


if __name__ == "__main__":
    main()
