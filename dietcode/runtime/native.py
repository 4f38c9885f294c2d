"""Loading machine code: the TVM runtime once a process, then a library's module."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import tvm_ffi

from dietcode.errors import LibraryError
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import BLOBS, blob_name, verify_file


@functools.lru_cache(maxsize=1)
def _runtime_is_loaded() -> bool:
    """Whether this process already has a TVM runtime, from an imported compiler or an earlier library.

    A second copy would register the same functions again, which ends the process.
    """
    return (
        sys.modules.get("tvm") is not None
        or tvm_ffi.get_global_func("runtime.config_threadpool", True) is not None
    )


def load_runtime(folder: Path, runtime: dict[str, Any]) -> None:
    """Load the TVM runtime that a library names, from its folder or from the cache.

    Its symbols must be global before a library is loaded: a parallel kernel calls a null pointer otherwise.

    Raises
    ------
    LibraryError
        It is nowhere, was altered, or cannot be loaded.
    """
    if _runtime_is_loaded():
        return
    name = blob_name(str(runtime.get("sha256")))
    paths = (folder / BLOBS / name, cache_dir() / BLOBS / name)
    path = _installed_runtime(runtime) or next((path for path in paths if path.is_file()), None)
    if path is None:
        raise LibraryError(
            f"{folder}: its TVM runtime {runtime.get('sha256')} is neither in {BLOBS}/ nor in the cache; "
            "copy the whole folder"
        )
    verify_file(path, runtime)
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise LibraryError(f"{path}: cannot be loaded: {error}") from error
    _runtime_is_loaded.cache_clear()


def _installed_runtime(runtime: dict[str, Any]) -> Path | None:
    """The same file inside an installed compiler: a later ``import tvm`` then finds it loaded already."""
    with contextlib.suppress(ImportError, ValueError, LibraryError):
        spec = importlib.util.find_spec("tvm")
        for package in (spec and spec.submodule_search_locations) or ():
            path = Path(package) / "lib" / "libtvm_runtime.so"
            verify_file(path, runtime)
            return path
    return None


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
