"""``dietcode.load``: a folder, whatever it holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dietcode.errors import LibraryError
from dietcode.runtime.library import Library
from dietcode.runtime.loading import load as load_library
from dietcode.runtime.manifest import is_bundle

if TYPE_CHECKING:
    from dietcode.runtime.models.model import Model


def load(
    folder: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    threads: str | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> Library | Model:
    """Load a folder: a library of one operator, or a whole model.

    Parameters
    ----------
    folder : path
        What ``dietcode tune -o``, ``dietcode compile -o`` or ``dietcode pull`` wrote: what was pulled is
        signed, and loads only if the signature is that of a trusted key.
    num_threads : int, optional
        Threads that a call uses at most, of the own pool then; by default as many as cores it was tuned for,
        or as there are if those are fewer.
    threads : str, optional
        Whose they are: ``own`` for one pool of all libraries of the process, ``host`` for the host program's
        OpenMP team, ``auto`` for that of PyTorch where the tensors are PyTorch's and for the pool elsewhere.
        By default ``$DIETCODE_THREADS``, or ``auto``.
    weights : path, optional
        Of a model: a ``.safetensors`` file in the place of the bundle's own.

    Raises
    ------
    LibraryError
        The folder is incomplete or altered, its signature is wrong or of a key that is not trusted, or its
        code cannot be loaded; or weights are missing.
    TargetError
        This CPU lacks an instruction set that the code uses; or, for a library for CUDA, there is no GPU or
        driver, the driver is too old, or the library has no code for the GPU.
    """
    path = Path(folder)
    if is_bundle(path):
        from dietcode.runtime.models.loading import load_model

        return load_model(path, None if weights is None else Path(weights), num_threads, threads)
    if weights is not None:
        raise LibraryError(f"{path}: a library of one operator, which has no weights; leave out weights=")
    return load_library(path, num_threads=num_threads, threads=threads)
