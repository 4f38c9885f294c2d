"""The weights of a bundle from a server, which has none: ``dietcode.lock`` says which file they are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import LibraryError
from dietcode.runtime.manifest import MANIFEST, WEIGHTS, read_json, sha256_file
from dietcode.workload.text import clip, one_line

LOCK = "dietcode.lock"


def weights_file(folder: Path, given: Path | None) -> Path | None:
    """Return the file of weights to load a bundle with; None for the bundle's own.

    Parameters
    ----------
    folder : Path
        Of a bundle.
    given : Path or None
        What the caller named; other weights than those that are locked are taken then, with a warning.

    Raises
    ------
    LibraryError
        Nothing is named, and the file has other content than is locked.
    """
    manifest = read_json(folder / MANIFEST)
    name, files = manifest.get("name"), manifest.get("files")
    if manifest.get("signature") is None or (isinstance(files, Mapping) and WEIGHTS in files):
        return given
    found = _locked(folder, str(name))
    if found is None:
        return given
    lock, facts = found
    beside = folder / WEIGHTS
    file = given or (beside if beside.exists() or facts["file"] is None else lock.parent / facts["file"])
    if not file.is_file():
        return given
    why = _difference(file, lock, str(name), facts)
    if why and given is None:
        raise LibraryError(f"{why}; restore it, or name the file by weights= to take it as it is")
    if why:
        warnings.warn(why, stacklevel=3)
    return file


def check_locked_file(lock: Path, name: str, facts: Mapping[str, Any]) -> None:
    """Refuse a file of weights whose digest differs from the locked one; a missing file passes.

    Raises
    ------
    LibraryError
        It has.
    """
    file = None if facts["file"] is None else lock.parent / facts["file"]
    why = _difference(file, lock, name, facts) if file is not None and file.is_file() else None
    if why:
        raise LibraryError(f"{why}; restore it, or submit the model again")


def _difference(file: Path, lock: Path, name: str, facts: Mapping[str, Any]) -> str | None:
    try:
        digest = sha256_file(file)
    except OSError as error:
        raise LibraryError(f"{file}: cannot be read: {error.strerror or error}") from error
    if digest == facts["sha256"]:
        return None
    locked = one_line(facts["sha256"], 80)
    return f"{file}: {digest}, other weights than {lock} has for {one_line(name)}, {locked}"


def _locked(folder: Path, name: str) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the lock file that has weights of a name, above the folder or in the current one."""
    for place in (*folder.resolve().parents, Path.cwd()):
        lock = place / LOCK
        if not lock.is_file():
            continue
        weights = read_json(lock).get("weights", {})
        facts = weights.get(name) if isinstance(weights, Mapping) else None
        if isinstance(facts, Mapping):
            file = facts.get("file")
            if not isinstance(facts.get("sha256"), str) or not isinstance(file, str | None):
                raise LibraryError(f"{lock}: weights of {clip(name)}: allowed: a file, and its sha256")
            return lock, {"file": file, "sha256": facts["sha256"]}
    return None
