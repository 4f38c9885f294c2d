"""``python -m dietcode.confinement.read MODULE PATH ARGUMENT…``: what reads a file that may hold code.

A file of PyTorch's may: its pickles and expressions are run as it is read. So the module is imported and run
where it can read nothing else, has no network, starts no process, and writes to ``$TMPDIR`` alone.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from dietcode.confinement import confine
from dietcode.lean import collect_seldom


def main() -> None:
    """Confine this process, then run the module as its program."""
    module, path, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    collect_seldom()
    confine(
        temporary=os.environ["TMPDIR"],
        readable=[Path(path)],
        drives_gpu=any(Path("/dev").glob("nvidia*")),  # tensors of a file may be on one
        starts_processes=False,
        max_file_bytes=None,
    )
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
