"""Loading machine code: a library's module, or our own."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import tvm_ffi

from dietcode.errors import LibraryError

_NUMBERS = itertools.count(1)


def load_code(path: Path) -> Any:
    """Load a library's module.

    Raises
    ------
    LibraryError
        The loader refuses it.
    """
    try:
        return tvm_ffi.load_module(str(path.resolve()))
    except Exception as error:
        raise LibraryError(f"{path}: cannot be loaded: {str(error).splitlines()[-1]}") from error


def load_content(content: bytes, name: str) -> tuple[Any, str]:
    """Load a library's module from memory; whoever may write to its folder cannot exchange what was verified.

    Parameters
    ----------
    content : bytes
        Of a shared object.
    name : str
        Of its file, for errors, debuggers and profilers.

    Returns
    -------
    module, path
        The path is what the loader knows it by.

    Raises
    ------
    LibraryError
        The loader refuses it, or the system gives no file in memory.
    """
    try:
        descriptor = os.memfd_create(name[-200:], os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            # The loader takes equal paths for the same code, and descriptors' numbers come again: so each
            # path is written in another way, which leads to the same.
            ways = "".join("/." if bit == "1" else "/" for bit in f"{next(_NUMBERS):b}")
            path = f"/proc/self/fd{ways}/{descriptor}"
            load = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")  # `load_module` goes by the name
            return load(path, "so"), path
    except Exception as error:
        raise LibraryError(f"{name}: cannot be loaded: {str(error).splitlines()[-1]}") from error
