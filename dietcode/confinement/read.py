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


def main() -> None:
    """Confine this process, then run the module as its program."""
    module, path, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    collect_seldom()
    has_gpu = any(Path("/dev").glob("nvidia*"))  # tensors of a file may be on one
    most = MEMORY_BYTES + _COPIES * _size(Path(path))
    confine(
        max_bytes=None if has_gpu else most,
        temporary=os.environ["TMPDIR"],
        readable=[Path(path)],
        drives_gpu=has_gpu,
        starts_processes=False,
        max_file_bytes=most,
    )
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the files of a folder, that memory is bounded by."""
    files = [path] if path.is_file() else [one for one in path.iterdir() if one.is_file()]
    return sum(one.stat().st_size for one in files)


if __name__ == "__main__":
    main()
