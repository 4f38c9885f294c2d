"""Compile ``launcher/*.c``, ``loops/*.c``, ``compiled_call/*.c`` and ``recorder/*.c``: a wheel's build does.

The launcher and the loops use nothing of Python's: one file serves every version. The compiled call and the
recorder use the limited API of Python 3.11: one file serves all versions. Without a compiled call, calls go
the way in Python.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).with_name("launcher")
LAUNCHER = SOURCES.with_suffix(".so")
INCLUDE = SOURCES.with_name("include")  # of programs in C++
LOOP_SOURCES = SOURCES.with_name("loops")
LOOPS = LOOP_SOURCES.with_suffix(".so")
CALL_SOURCES = SOURCES.with_name("compiled_call")
COMPILED_CALL = CALL_SOURCES.with_suffix(".abi3.so")
RECORDER_SOURCES = SOURCES.with_name("recorder")
RECORDER = RECORDER_SOURCES.with_suffix(".abi3.so")
_SHARED_LOOPS = ("collect", "fibers", "heap", "machine", "program", "schedule")  # with the recorder
_FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra"]
_LINKED = ["-Wl,-z,nodelete", "-ldl"]  # its threads outlive whoever loaded it


def compile_launcher() -> Path:
    """Compile it with ``$CC``, or cc, gcc or clang, and the headers of the installed tvm-ffi.

    Raises
    ------
    RuntimeError
        There is no C compiler or no tvm-ffi, or what the compiler says.
    """
    return _compile(_files(SOURCES), LAUNCHER, [_ffi_headers()], _LINKED)


def compile_loops() -> Path:
    """Compile the loops over structures, as `compile_launcher` does and with its errors."""
    return _compile(_files(LOOP_SOURCES), LOOPS, [_ffi_headers()], ["-lm"])


def compile_call() -> Path | None:
    """Compile the short way of a call; None where this Python is free-threaded or has no headers.

    Raises
    ------
    RuntimeError
        As for `compile_launcher`.
    """
    headers = python_headers()
    return (
        None
        if headers is None
        else _compile(_files(CALL_SOURCES), COMPILED_CALL, [_ffi_headers(), headers], [])
    )


def compile_recorder() -> Path | None:
    """Compile the recorder of programs, as `compile_call` does and with its errors."""
    headers = python_headers()
    return None if headers is None else _compile(recorder_files(), RECORDER, [_ffi_headers(), headers], [])


def recorder_files() -> list[Path]:
    """Return the recorder's sources, with those that it shares with the loops and the compiled call."""
    shared = [LOOP_SOURCES / f"{name}.c" for name in _SHARED_LOOPS]
    return [*_files(RECORDER_SOURCES), *shared, CALL_SOURCES / "tensors.c"]


def python_headers() -> Path | None:
    """The folder of Python's headers, where the compiled call can be built with them."""
    headers = Path(sysconfig.get_path("include"))
    is_limited = not sysconfig.get_config_var("Py_GIL_DISABLED")
    return headers if is_limited and (headers / "Python.h").is_file() else None


def _ffi_headers() -> Path:
    ffi = importlib.util.find_spec("tvm_ffi")
    if ffi is None or ffi.origin is None:
        raise RuntimeError(f"{SOURCES} needs the headers of apache-tvm-ffi, which is not installed")
    return Path(ffi.origin).parent / "include"


def _files(sources: Path) -> list[Path]:
    return sorted(sources.glob("*.c"))


def _compile(sources: Sequence[Path], target: Path, headers: Sequence[Path], linked: Sequence[str]) -> Path:
    found = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
    compiler = shlex.split(os.environ.get("CC", "")) or found[:1]
    if not compiler:
        raise RuntimeError(f"no C compiler found for {target}; install cc, gcc or clang, or set CC")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        given = [f"-I{path}" for path in headers] + [str(path) for path in sources]
        command = [*compiler, *_FLAGS, *given, "-o", str(made), *linked]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise RuntimeError(f"{compiler[0]}: {error.strerror}; set CC to a C compiler") from error
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr}")
        made.replace(target)  # at once: another process may have it loaded
    return target


if __name__ == "__main__":
    try:
        compile_launcher()
        compile_loops()
        if compile_call() is None or compile_recorder() is None:
            sys.stderr.write("the call in C was left out: it needs Python's headers, and the GIL\n")
    except RuntimeError as error:
        sys.exit(str(error))
