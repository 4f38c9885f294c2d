"""Loading machine code: a library's module, or our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm_ffi

from dietcode.errors import LibraryError


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
