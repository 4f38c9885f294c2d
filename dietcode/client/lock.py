"""``dietcode.lock``: exactly which libraries a project uses, for another machine to get the same bytes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Literal

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dietcode.client import calls
from dietcode.client.address import normal_url
from dietcode.client.answers import reason_of
from dietcode.client.listing import Listing, check_facts
from dietcode.errors import DietCodeError, LibraryError, RequestError
from dietcode.protocol import FileFacts
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.locked_weights import check_locked_file
from dietcode.runtime.manifest import (
    BUNDLE_FILES,
    FILES,
    PROGRAM_FILES,
    RECURSION_FILES,
    pretty_json,
    sha256_file,
)
from dietcode.workload.text import clip

FORMAT = "dietcode-lock/1"
_MAX_BYTES = 8 << 20


class LockEntry(BaseModel):
    """A library of a lock file.

    Attributes
    ----------
    server : str
        Where it came from.
    folder : str or None
        Where it was put, relative to the lock file's folder; None for the cache.
    key : str or None
        Fingerprint of the key that signed it, so that no key is trusted on first use where it is installed;
        None in a lock file of an older version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(ge=1, le=2**31 - 1)
    server: str
    manifest: FileFacts
    files: dict[str, FileFacts]
    runtime: FileFacts | None
    folder: str | None = None
    key: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")

    def fits(self, listing: Listing) -> bool:
        """Return whether a manifest lists the same content."""
        return (self.manifest, self.files, self.runtime) == (listing.manifest, listing.files, listing.runtime)


class LockedWeights(BaseModel):
    """The weights of a model that was submitted from here; a server has none, and signs none.

    Attributes
    ----------
    file : str or None
        Relative to the lock file's folder; None for one outside of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str | None
    sha256: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class _Lock(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["dietcode-lock/1"]
    libraries: dict[str, LockEntry]
    weights: dict[str, LockedWeights] = Field(default_factory=dict)


def entry_of(listing: Listing, server: str, folder: Path | None, lock: Path, key: str) -> LockEntry:
    """Return what a lock file says of a library.

    Parameters
    ----------
    folder : path, optional
        The library's folder. One outside the lock file's folder means nothing elsewhere, and is left out.
    key : str
        Fingerprint of the key that signed it.
    """
    return LockEntry(
        version=listing.version,
        server=server,
        manifest=listing.manifest,
        files=listing.files,
        runtime=listing.runtime,
        folder=None if folder is None else _relative(folder, lock),
        key=key,
    )


def _relative(path: Path, lock: Path) -> str | None:
    with suppress(ValueError):
        return path.resolve().relative_to(lock.resolve().parent).as_posix()
    return None


def read_lock(path: Path) -> dict[str, LockEntry]:
    """Return the libraries of a lock file; one that is not there has none.

    Raises
    ------
    LibraryError
        It cannot be read, or is not a lock file.
    """
    return _read(path).libraries


def _read(path: Path) -> _Lock:
    try:
        if path.exists() and not path.is_file():
            raise LibraryError(f"{path}: cannot be read: it is no file; give another with --lock")
        if path.stat().st_size > _MAX_BYTES:
            raise LibraryError(f"{path}: larger than {_MAX_BYTES >> 20} MiB; is this a lock file?")
        lock = _Lock.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return _Lock(format="dietcode-lock/1", libraries={})
    except OSError as error:
        raise LibraryError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValidationError, RecursionError) as error:
        raise LibraryError(
            f"{path}: no lock file of format {FORMAT} ({reason_of(error)}); "
            "restore it, or delete it and pull again"
        ) from None
    for name, entry in lock.libraries.items():
        _check_entry(path, name, entry)
    for name, facts in lock.weights.items():
        _check_relative(facts.file, f"{path}: {clip(name)}: weights", "file")
    return lock


def _check_entry(path: Path, name: str, entry: LockEntry) -> None:
    where = f"{path}: {clip(name)}"
    try:
        calls.check_name(name)
        normal_url(entry.server)
    except RequestError as error:
        raise LibraryError(f"{where}: {error}") from None
    of_models = (BUNDLE_FILES, RECURSION_FILES, PROGRAM_FILES)
    if set(entry.files) not in (set(FILES), *map(set, of_models)):
        names = " or ".join(sorted({name for files in of_models for name in files}))
        raise LibraryError(f"{where}: files: allowed: {', '.join(FILES)}, or {names} of a model")
    for what, facts in {"manifest": entry.manifest, "runtime": entry.runtime, **entry.files}.items():
        if facts is not None:
            check_facts(facts, f"{where}: {what}")
    _check_relative(entry.folder, where, "folder")


def _check_relative(given: str | None, where: str, what: str) -> None:
    path = PurePosixPath("x" if given is None else given)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in str(path):
        raise LibraryError(f"{where}: {what} {clip(given)}; allowed: one below the lock file's folder")


def folder_of(entry: LockEntry, path: Path) -> Path | None:
    """Return the folder that an entry names.

    Raises
    ------
    LibraryError
        A link leads out of the lock file's folder.
    """
    if entry.folder is None:
        return None
    folder, root = path.parent / entry.folder, path.resolve().parent
    if root not in folder.resolve().parents:
        raise LibraryError(f"{path}: folder {clip(entry.folder)} leads out of {root} by a link")
    return folder


def update_lock(path: Path, name: str, entry: LockEntry) -> None:
    """Add or replace one entry; the file is replaced at once, or not at all.

    Raises
    ------
    LibraryError
        The file at `path` is not a lock file.
    DietCodeError
        It cannot be written.
    """
    _update(path, lambda lock: lock.model_copy(update={"libraries": {**lock.libraries, name: entry}}))


def lock_weights(path: Path, name: str, file: Path) -> None:
    """Note the digest of a model's weights in a lock file; raises as `update_lock`."""
    facts = LockedWeights(
        file=_relative(file, path), sha256=sha256_file(file), size_bytes=file.stat().st_size
    )
    _update(path, lambda lock: lock.model_copy(update={"weights": {**lock.weights, name: facts}}))


def check_weights(path: Path, name: str) -> None:
    """Refuse an altered file of the weights that a lock file has for a name; raises LibraryError."""
    facts = _read(path).weights.get(name)
    if facts is not None:
        check_locked_file(path, name, facts.model_dump())


def _update(path: Path, change: Callable[[_Lock], _Lock]) -> None:
    with exclusive(path):
        plain = change(_read(path)).model_dump(mode="json")
        data = pretty_json({key: value for key, value in plain.items() if value or key != "weights"})
        staged: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name_of_staged = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
            staged = Path(name_of_staged)
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            staged.chmod(0o644)
            staged.replace(path)
        except OSError as error:
            raise DietCodeError(f"{path}: cannot be written: {error.strerror or error}") from error
        finally:
            if staged is not None:
                staged.unlink(missing_ok=True)


@contextmanager
def exclusive(target: Path) -> Iterator[None]:
    """Keep other processes of this user from changing the same file or folder meanwhile.

    Raises
    ------
    DietCodeError
        The lock cannot be made in the cache.
    """
    name = hashlib.sha256(os.fsencode(target.resolve())).hexdigest()[:16]
    path = cache_dir() / "locks" / f"{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        lock.acquire()
    except OSError as error:
        raise DietCodeError(
            f"{path}: cannot be locked: {error.strerror or error}; see DIETCODE_CACHE"
        ) from error
    try:
        yield
    finally:
        lock.release()
