"""Compile ``launcher/*.c``: the wheel's build does, and ``python -m dietcode.runtime.compile_launcher``.

It uses nothing of Python's, so that one file serves every version.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("launcher")
LAUNCHER = SOURCES.with_suffix(".so")
INCLUDE = SOURCES.with_name("include")  # of programs in C++
_FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra"]
_LINKED = ["-Wl,-z,nodelete", "-ldl"]  # its threads outlive whoever loaded it


def compile_launcher() -> Path:
    """Compile it with ``$CC``, or cc, gcc or clang, and the headers of the installed tvm-ffi.

    Raises
    ------
    RuntimeError
        There is no C compiler or no tvm-ffi, or what the compiler says.
    """
    found = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
    compiler = shlex.split(os.environ.get("CC", "")) or found[:1]
    if not compiler:
        raise RuntimeError(f"no C compiler found for {SOURCES}; install cc, gcc or clang, or set CC")
    ffi = importlib.util.find_spec("tvm_ffi")
    if ffi is None or ffi.origin is None:
        raise RuntimeError(f"{SOURCES} needs the headers of apache-tvm-ffi, which is not installed")
    include = f"-I{Path(ffi.origin).parent / 'include'}"
    with tempfile.TemporaryDirectory(dir=LAUNCHER.parent) as folder:
        made = Path(folder) / LAUNCHER.name
        sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
        command = [*compiler, *_FLAGS, include, *sources, "-o", str(made), *_LINKED]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise RuntimeError(f"{compiler[0]}: {error.strerror}; set CC to a C compiler") from error
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr}")
        made.replace(LAUNCHER)  # at once: another process may have it loaded
    return LAUNCHER


if __name__ == "__main__":
    try:
        compile_launcher()
    except RuntimeError as error:
        sys.exit(str(error))
