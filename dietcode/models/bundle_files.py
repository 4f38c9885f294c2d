"""The files of a bundle: written beside its place, loaded once, and moved there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import LibraryError, TargetError
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.manifest import (
    FILES,
    LIBRARIES,
    MANIFEST,
    WEIGHTS,
    is_recorded,
    pretty_json,
    sha256_file,
    staged_folder,
)
from dietcode.runtime.opening import load
from dietcode.runtime.signed import is_required

Weights = Mapping[str, "np.ndarray[Any, Any]"]


def write_bundle(
    folder: Path,
    described: Mapping[str, bytes],
    weights: Weights,
    built: Mapping[str, Path],
    manifest: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]],
    check: Callable[[Path], None] = lambda staged: None,
) -> None:
    """Write a bundle.

    Parameters
    ----------
    folder : Path
    described : mapping of str to bytes
        The files that say what it is, by name.
    weights : mapping of str to array
        Those that go into it.
    built : mapping of str to Path
        The folder of each library, by the digest of its part.
    manifest : callable
        ``(files, libraries) -> manifest``, see `dietcode.models.bundling.bundle_manifest`.
    check : callable
        Called with the whole bundle, before it takes its place.
    """
    with staged_folder(folder) as staged:
        for name, data in described.items():
            (staged / name).write_bytes(data)
        files = list(described)
        if weights:
            save_weights(weights, staged / WEIGHTS)
            files.append(WEIGHTS)
        libraries = {}
        for digest, path in built.items():
            own = staged / LIBRARIES / digest
            own.mkdir(parents=True)
            for name in (MANIFEST, *FILES):
                shutil.copyfile(path / name, own / name)
            libraries[digest] = {"manifest": sha256_file(own / MANIFEST)}
        facts = {
            name: {"bytes": (staged / name).stat().st_size, "sha256": sha256_file(staged / name)}
            for name in files
        }
        (staged / MANIFEST).write_bytes(pretty_json(manifest(facts, libraries)))
        check(staged)


def save_weights(weights: Weights, path: Path) -> None:
    """Write weights as a ``.safetensors`` file."""
    from safetensors.numpy import save_file

    save_file({name: np.asarray(one, order="C") for name, one in weights.items()}, path)


def check_loads(staged: Path, folder: Path, weights: Weights) -> None:
    """Load a bundle once, before it takes its place: what users cannot load is no bundle.

    Parameters
    ----------
    weights : mapping of str to array
        Those that are not in it.

    Raises
    ------
    LibraryError
        It does not load.
    """
    if is_required(given=False):  # it is not signed yet
        return
    try:
        with tempfile.TemporaryDirectory(prefix="dietcode-") as name:
            path = Path(name) / WEIGHTS
            if weights:
                save_weights(weights, path)
            file = path if weights else None
            if is_recorded(staged):
                from dietcode.runtime.recorded.loading import open_recorded  # which needs the recorder

                open_recorded(staged, LoadOptions(file, None, None, False))
            else:
                load(staged, weights=file, require_signature=False)
    except TargetError:  # it is for another machine
        return
    except LibraryError as error:
        why = str(error).replace(str(staged), str(folder))
        raise LibraryError(f"{folder}: not written, since it would not load: {why}") from error
