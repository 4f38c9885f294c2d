"""Loading a library: its folder checked, this machine compared with what it was built for."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from dietcode.errors import LibraryError, TargetError
from dietcode.runtime.cpu import missing_features
from dietcode.runtime.cuda_library import CudaLibrary
from dietcode.runtime.library import Library
from dietcode.runtime.manifest import CODE, MANIFEST, packing_function, read_manifest
from dietcode.runtime.native import load_code
from dietcode.runtime.signed import check_signature
from dietcode.runtime.threads import Threads, attach


def load(
    folder: str | os.PathLike[str], *, num_threads: int | None = None, threads: str | None = None
) -> Library:
    """Load a library folder.

    Parameters
    ----------
    folder : path
        What ``dietcode tune -o`` wrote, or ``dietcode pull``: that one is signed, and loads only if the
        signature is that of a trusted key.
    num_threads : int, optional
        Threads that a call of this library uses at most, of the own pool then; by default as many as cores it
        was tuned for, or as there are if those are fewer.
    threads : str, optional
        Whose they are: ``own`` for one pool of all libraries of the process, ``host`` for the host program's
        OpenMP team, ``auto`` for that of PyTorch where the tensors are PyTorch's and for the pool elsewhere.
        By default ``$DIETCODE_THREADS``, or ``auto``.

    Raises
    ------
    LibraryError
        The folder is incomplete or altered, its signature is wrong or of a key that is not trusted, or its
        code cannot be loaded.
    TargetError
        This CPU lacks an instruction set that the code uses; or, for a library for CUDA, there is no GPU or
        driver, the driver is too old, or the library has no code for the GPU.
    """
    path = Path(folder)
    check_signature(path)
    manifest = read_manifest(path)
    try:
        _check_machine(path, manifest)
        chosen = Threads.of(num_threads, threads, manifest["num_threads"])
        if "cuda" in manifest["requires"]:
            on_gpus = CudaLibrary(path, manifest, load_code(path / CODE))
            on_gpus.prepare()
            return on_gpus
        return _library(path, manifest, chosen)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LibraryError(f"{path / MANIFEST}: describes no library: {what[:120]}") from error


def _library(path: Path, manifest: dict[str, Any], threads: Threads) -> Library:
    module = load_code(path / CODE)
    attach(path / CODE)
    functions = {"run": threads.bind(module["run"]), "select": module["select"]}
    for facts in manifest["packed"].values():
        name = packing_function(facts)
        functions[name] = threads.bind(module[name])
    return Library(path, manifest, functions, threads.bind(module["run"], beside_torch=True))


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
