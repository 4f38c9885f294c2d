"""Loading a library: its folder checked, this machine compared with what it was built for."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from dietcode.errors import LibraryError, TargetError
from dietcode.runtime import pool
from dietcode.runtime.cpu import available_cores, missing_features
from dietcode.runtime.cuda_library import CudaLibrary
from dietcode.runtime.library import Library
from dietcode.runtime.manifest import CODE, MANIFEST, read_manifest
from dietcode.runtime.native import load_code, load_runtime
from dietcode.runtime.signed import check_signature


def load(folder: str | os.PathLike[str], *, num_threads: int | None = None) -> Library:
    """Load a library folder.

    Parameters
    ----------
    folder : path
        What ``dietcode tune -o`` wrote, or ``dietcode pull``: that one is signed, and loads only if the
        signature is that of a trusted key.
    num_threads : int, optional
        Threads of the pool; by default the cores the library was tuned for, or those there are if fewer.

    Raises
    ------
    LibraryError
        The folder is incomplete or altered, its signature is wrong or of a key that is not trusted, or its
        code cannot be loaded.
    TargetError
        This CPU lacks an instruction set that the code uses; or, for a library for CUDA, there is no GPU or
        driver, the driver is too old, or the library has no code for the GPU.
    """
    if num_threads is not None and (not isinstance(num_threads, int) or num_threads < 1):
        raise LibraryError(f"num_threads: given {num_threads!r}; allowed: 1 or more")
    path = Path(folder)
    check_signature(path)
    manifest = read_manifest(path)
    try:
        _check_machine(path, manifest)
        if "cuda" in manifest["requires"]:
            on_gpus = CudaLibrary(path, manifest, load_code(path / CODE))
            on_gpus.prepare()
            return on_gpus
        threads = num_threads or max(1, min(manifest["num_threads"], available_cores()))
        pool.set_num_threads(threads)
        load_runtime(path, manifest["runtime"])
        return Library(path, manifest, load_code(path / CODE))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LibraryError(f"{path / MANIFEST}: describes no library: {what[:120]}") from error


def _check_machine(folder: Path, manifest: dict[str, Any]) -> None:
    requires = manifest["requires"]
    if platform.machine() != requires["machine"] or platform.system() != requires["system"]:
        raise TargetError(
            f"{folder}: built for {requires['system']} on {requires['machine']}; "
            f"this is {platform.system()} on {platform.machine()}"
        )
    missing = missing_features(requires["cpu_features"])
    if missing:
        raise TargetError(
            f"{folder}: needs a CPU with {', '.join(missing)}, which this one lacks; "
            "tune with target: {kind: llvm} on a machine like this one"
        )
