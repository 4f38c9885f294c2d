"""``dietcode.load``: a folder, whatever it holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dietcode.errors import DietCodeError, LibraryError
from dietcode.runtime.library import Library
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.loading import load as load_library
from dietcode.runtime.locked_weights import weights_file
from dietcode.runtime.manifest import (
    MANIFEST,
    has_parts,
    is_bundle,
    is_program,
    is_recorded,
    is_recursion,
    sha256_file,
)
from dietcode.workload.text import one_line

if TYPE_CHECKING:
    from dietcode.runtime.models.model import Model
    from dietcode.runtime.programs.loaded import LoadedProgram
    from dietcode.runtime.recorded.loaded import RecordedProgram
    from dietcode.runtime.recursion.loaded import LoadedRecursion

# What NumPy, TVM and Python raise of data that do not fit together.
_MISFITS = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError)


@overload
def load(
    folder: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    threads: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    require_signature: bool | None = None,
    program: None = None,
) -> Library | Model | LoadedRecursion | LoadedProgram: ...


@overload
def load(
    folder: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    threads: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    require_signature: bool | None = None,
    program: Callable[..., Any],
) -> RecordedProgram: ...


def load(
    folder: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    threads: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    require_signature: bool | None = None,
    program: Any = None,
) -> Library | Model | LoadedRecursion | LoadedProgram | RecordedProgram:
    """Load a folder: a library of one operator, a whole model, a recursion, or a program.

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
        Of a model, a recursion or a program: a ``.safetensors`` file in the place of the bundle's own. Of one
        from a server it is by default the file that ``dietcode submit`` wrote, as ``dietcode.lock`` has it
        (above the folder, or in the current one), where that is unaltered; another one is taken with a
        warning.
    require_signature : bool, optional
        Whether a folder without a signature is refused. By default as ``$DIETCODE_REQUIRE_SIGNATURE`` says,
        0 or 1; on a machine that has the file ``/etc/dietcode/require-signature`` it always is.
    program : dietcode.Program, optional
        Of a recorded program (``dietcode compile --recorded``): the function that it was compiled from, or
        a later version: what has changed in it runs eagerly.

    Raises
    ------
    LibraryError
        The folder is incomplete or altered, its signature is wrong or of a key that is not trusted, or its
        code cannot be loaded; or weights are missing, or not those of the lock file.
    TargetError
        This CPU lacks an instruction set that the code uses; or, for a library for CUDA, there is no GPU or
        driver, the driver is too old, or the library has no code for the GPU.
    """
    path = Path(folder)
    how = num_threads, threads, require_signature
    file = None if weights is None else Path(weights)
    try:
        file = weights_file(path, file) if has_parts(path) else file
        opened = _open(path, LoadOptions(file, *how), program)
        digest = sha256_file(path / MANIFEST)
    except (DietCodeError, ImportError):
        raise
    except MemoryError as error:
        raise LibraryError(f"{path}: takes more memory than there is; load it on a larger machine") from error
    except _MISFITS as error:
        what = one_line(f"{type(error).__name__}: {error}", 160)
        raise LibraryError(
            f"{path}: its files do not fit together: {what}; compile again, or copy the whole folder"
        ) from error
    source = str(path.absolute()), None if file is None else str(file.absolute())
    if program is None:  # a function is not found again by its folder
        opened.loaded_by = (load_again, (*source, digest, *how))
    return opened


def _open(
    path: Path, options: LoadOptions, program: Any
) -> Library | Model | LoadedRecursion | LoadedProgram | RecordedProgram:
    """Return what a folder holds, by its format."""
    if is_recorded(path):
        from dietcode.runtime.recorded.loading import load_recorded

        return load_recorded(path, options, program)
    if program is not None:
        raise LibraryError(f"{path}: no recorded program; leave out program=, or compile it with --recorded")
    if is_bundle(path):
        from dietcode.runtime.models.loading import load_model

        return load_model(path, options)
    if is_recursion(path):
        from dietcode.runtime.recursion.loading import load_recursion

        return load_recursion(path, options)
    if is_program(path):
        from dietcode.runtime.programs.loading import load_program

        return load_program(path, options)
    if options.weights is not None:
        raise LibraryError(f"{path}: a library of one operator, which has no weights; leave out weights=")
    return load_library(
        path,
        num_threads=options.num_threads,
        threads=options.threads,
        require_signature=options.require_signature,
    )


def load_again(
    folder: str,
    weights: str | None,
    digest: str,
    num_threads: int | None,
    threads: str | None,
    require_signature: bool | None = None,
) -> Library | Model | LoadedRecursion | LoadedProgram | RecordedProgram:
    """Load what was pickled, in another process or on another machine.

    Parameters
    ----------
    folder, weights : str
        Absolute paths.
    digest : str
        Of the manifest that was loaded.
    num_threads, threads, require_signature
        As `load` has them.

    Raises
    ------
    LibraryError
        The folder is not there, or holds another library by now; or as `load`.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise LibraryError(f"{folder}: was pickled, and is no library here; copy the folder here")
    if sha256_file(path) != digest:
        raise LibraryError(f"{folder}: was pickled, and holds another library now; load and pickle it again")
    return load(
        folder,
        num_threads=num_threads,
        threads=threads,
        weights=weights,
        require_signature=require_signature,
    )
