"""``python -m dietcode.confinement.start PARENT MODULE [FOLDER …]``: confined before the module is imported.

What compiles has threads as soon as it is imported, and no thread can confine another. It can write to
the folders, and to ``$TMPDIR``, and ends with its parent, whose number is given.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from dietcode.confinement import confine
from dietcode.lean import collect_seldom, import_less_of_tvm
from dietcode.lifeline import die_with_parent


def main() -> None:
    """Confine this process, then run the module as its program."""
    parent, module, *folders = sys.argv[1:]
    del sys.argv[1:]
    die_with_parent(int(parent))
    import_less_of_tvm()
    collect_seldom()
    confine(temporary=os.environ["TMPDIR"], writable=[Path(folder) for folder in folders])
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
