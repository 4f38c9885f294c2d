"""The server's keys: the private one that signs, and what is known of those before it.

``keys/ring.json`` in the data folder says which key is current and how each one followed another; the private
key is ``keys/<16 hex digits>.pem``, readable by its owner only, or the file that a setting names. The file
system, not the database, has them: a copy of the database signs nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dietcode.errors import DietCodeError, RequestError
from dietcode.protocol import KeyList, ServerKey
from dietcode.trust.keys import KeyFormatError, PublicKey, SigningKey
from dietcode.trust.pins import now_text
from dietcode.trust.statements import sign_rotation
from dietcode.workload.text import clip

FOLDER, RING = "keys", "ring.json"


class _Entry(BaseModel):
    """A key that signs, or signed.

    Attributes
    ----------
    revoked_at : str or None
        Since when nothing that it signed counts.
    file : str or None
        Where the operator keeps it, if it was given to a rotation.
    """

    model_config = ConfigDict(extra="forbid")

    fingerprint: str
    public_key: str
    since: str
    revoked_at: str | None = None
    file: str | None = None


class _Ring(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal["dietcode-keys/1"] = "dietcode-keys/1"
    current: str
    keys: list[_Entry]
    rotations: list[dict[str, Any]] = Field(default_factory=list)


class KeyRing:
    """The keys of one data folder; processes and threads may share it, and see what another one changed.

    Parameters
    ----------
    data_dir : Path
        The server's data folder; ``keys`` is made in it when a key is first needed.
    given : Path, optional
        File of the private key, where the operator keeps it; after a rotation, until it names the new one,
        the file of that rotation counts.
    """

    def __init__(self, data_dir: Path, given: Path | None = None) -> None:
        self._folder = data_dir / FOLDER
        self._given = given

    def signing_key(self) -> SigningKey:
        """Return the private key that signs now; the first one is made.

        Raises
        ------
        DietCodeError
            It cannot be read, or the operator's file holds another key than the current one.
        """
        ring = self._ring()
        try:
            return self._private(ring)
        except DietCodeError:
            newer = self._ring()  # another process may have rotated between the two reads
            if newer.current == ring.current:
                raise
            return self._private(newer)

    def public(self) -> KeyList:
        """Return what clients may know: all keys, and how one followed another; raises as `signing_key`."""
        ring = self._ring()
        keys = [
            ServerKey.model_validate(
                {
                    "fingerprint": entry.fingerprint,
                    "public_key": entry.public_key,
                    "state": _state(ring, entry),
                    "since": entry.since,
                }
            )
            for entry in ring.keys
        ]
        return KeyList(current=ring.current, keys=keys, rotations=ring.rotations)

    def revoked(self) -> list[str]:
        """Fingerprints of revoked keys, sorted."""
        return sorted(entry.fingerprint for entry in self._ring().keys if entry.revoked_at is not None)

    def rotate(self, to: Path | None = None) -> tuple[str, str]:
        """Make a new key the current one, signed by the one before; return both fingerprints.

        Parameters
        ----------
        to : Path, optional
            File of the new private key; needed where a setting names the current one's.

        Raises
        ------
        DietCodeError
            The current key cannot be read, or the new one cannot be written.
        RequestError
            `to` is missing or not wanted, or names a key that signed before.
        """
        if (to is None) != (self._given is None):
            need = "--to FILE is missing" if to is None else "--to FILE is for a server with that setting"
            raise RequestError(f"key rotate: {need}: DIETCODE_SERVE_SIGNING_KEY names the file of its key")
        ring = self._ring()
        with self._locked():
            return self._follow(self._read() or ring, to)

    def _follow(self, ring: _Ring, to: Path | None) -> tuple[str, str]:
        """Carry out a rotation; the ring is written once the new key is, so that a crash loses neither."""
        old = self._private(ring)
        new = SigningKey.generate() if to is None else _read_private(to)
        names = old.public.fingerprint, new.public.fingerprint
        if any(entry.fingerprint == names[1] for entry in ring.keys):
            raise RequestError(f"{to}: {names[1]} has signed before; give a new key")
        if to is None:
            self._keep(new)
        link = sign_rotation(old, new.public, now_text()).to_json()
        entries, links = [*ring.keys, _entry(new.public, to)], [*ring.rotations, link]
        self._write(_Ring(current=names[1], keys=entries, rotations=links))
        if to is None:
            self._path_of(names[0]).unlink(missing_ok=True)  # nobody can steal it any more
        return names

    def revoke(self, fingerprint: str) -> None:
        """Stand for an earlier key no longer, nor for the rotation that it signed.

        Raises
        ------
        RequestError
            It is no key of this server, or the current one.
        """
        ring = self._ring()
        if fingerprint == ring.current:
            raise RequestError(
                f"{clip(fingerprint, 80)} signs now; `dietcode key rotate` first, then revoke it"
            )
        if fingerprint not in {entry.fingerprint for entry in ring.keys}:
            raise RequestError(
                f"{clip(fingerprint, 80)}: no key of this server; `dietcode key list` shows them"
            )
        with self._locked():
            ring = self._read() or ring
            for entry in ring.keys:
                if entry.fingerprint == fingerprint:
                    entry.revoked_at = entry.revoked_at or now_text()
            ring.rotations = [
                link for link in ring.rotations if link["signatures"][0]["keyid"] != fingerprint
            ]
            self._write(ring)

    def _ring(self) -> _Ring:
        """Return the key ring; the first key is made, or taken from the operator's file."""
        found = self._read()
        if found is not None:
            return found
        with self._locked():
            found = self._read()
            if found is None:
                key = SigningKey.generate() if self._given is None else _read_private(self._given)
                if self._given is None:
                    self._keep(key)
                found = _Ring(current=key.public.fingerprint, keys=[_entry(key.public)])
                self._write(found)
        return found

    def _private(self, ring: _Ring) -> SigningKey:
        """The current key, from its file; where that holds an earlier one, from the file of the rotation."""
        noted = next((entry.file for entry in ring.keys if entry.fingerprint == ring.current), None)
        names = {entry.fingerprint for entry in ring.keys}
        path = self._given or self._path_of(ring.current)
        try:
            found = _read_private(path)
        except DietCodeError:
            if noted is None:
                raise
            path = Path(noted)
            found = _read_private(path)
        given = found.public.fingerprint
        if given != ring.current and given in names and noted is not None:
            path = Path(noted)
            found = _read_private(path)
        if found.public.fingerprint == ring.current:
            return found
        advice = (
            "give the file of the key that followed it"
            if given in names
            else "`dietcode key rotate --to` it first"
        )
        raise DietCodeError(
            f"{path}: holds the key {found.public.fingerprint}, but this server signs with {ring.current}; "
            f"{advice}"
        )

    def _path_of(self, fingerprint: str) -> Path:
        return self._folder / f"{fingerprint.removeprefix('sha256:')[:16]}.pem"

    def _read(self) -> _Ring | None:
        path = self._folder / RING
        try:
            return _Ring.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DietCodeError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            raise DietCodeError(
                f"{path}: not what this version of dietcode writes ({error.error_count()} faults); "
                "restore it from a backup"
            ) from None

    def _keep(self, key: SigningKey) -> None:
        self._replace(self._path_of(key.public.fingerprint), key.pem)

    def _write(self, ring: _Ring) -> None:
        self._replace(self._folder / RING, (ring.model_dump_json(indent=2) + "\n").encode())

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a file at once, readable by its owner only."""
        staged: Path | None = None
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
            staged = Path(name)
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            staged.replace(path)
        except OSError as error:
            raise DietCodeError(f"{path}: cannot be written: {error.strerror or error}") from error
        finally:
            if staged is not None:
                staged.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self._folder / "ring.lock")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock.acquire()
        except OSError as error:
            raise DietCodeError(f"{self._folder}: cannot be written: {error.strerror or error}") from error
        try:
            yield
        finally:
            lock.release()


def _entry(key: PublicKey, file: Path | None = None) -> _Entry:
    path = None if file is None else str(file.absolute())
    return _Entry(fingerprint=key.fingerprint, public_key=key.pem, since=now_text(), file=path)


def _state(ring: _Ring, entry: _Entry) -> str:
    if entry.revoked_at is not None:
        return "revoked"
    return "current" if entry.fingerprint == ring.current else "earlier"


def _read_private(path: Path) -> SigningKey:
    """Read a private key that only its owner, and perhaps a group, can read."""
    try:
        if path.stat().st_mode & 0o007:
            raise DietCodeError(f"{path}: others can read this private key; chmod 600 it, or make a new one")
        return SigningKey.from_pem(path.read_bytes())
    except OSError as error:
        raise DietCodeError(
            f"{path}: the signing key cannot be read: {error.strerror or error}; restore it, or move the "
            "folder keys away: clients then ask their users before they trust a new one"
        ) from error
    except KeyFormatError as error:
        raise DietCodeError(f"{path}: {error}") from None
