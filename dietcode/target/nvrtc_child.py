"""NVRTC in a process whose addresses are the same each time: ``python -m dietcode.target.nvrtc_child``.

Its optimiser orders some of its work by addresses: of about fifty compilations of one text in a process, one
gave PTX with other registers. A library's bytes must not depend on that. The request comes as JSON on
standard input from `dietcode.target.nvrtc`, the code goes to standard output.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from dietcode.confinement import MEMORY_BYTES, confine
from dietcode.errors import DietCodeError
from dietcode.lean import python_command
from dietcode.lifeline import die_with_parent

_SAME_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of personality(2)
_AGAIN = "again"


def main() -> None:
    """Start again at addresses that are not random, where the system allows that, and compile, confined."""
    die_with_parent()
    if sys.argv[1:] != [_AGAIN]:
        libc = ctypes.CDLL(None)
        libc.personality(_SAME_ADDRESSES)  # where it is refused, the code is as good
        os.execv(sys.executable, python_command("dietcode.target.nvrtc_child", _AGAIN))
    confine(MEMORY_BYTES)
    from dietcode.target.nvrtc import compile_here

    request = json.load(sys.stdin)
    try:
        code = compile_here(request["text"], request["flags"], request["form"])
    except DietCodeError as error:
        sys.stderr.write(json.dumps({"kind": type(error).__name__, "message": str(error)}))
        sys.exit(1)
    sys.stdout.buffer.write(code)


if __name__ == "__main__":
    main()
