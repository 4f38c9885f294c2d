"""Pins, the keys that this user trusts: ``trust.json`` in the user's settings.

A server's key is pinned when it is first used, or by ``dietcode trust``. A lock file vouches for its key too,
but only so that what it lists can be loaded: it pins no server.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import platformdirs
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dietcode.errors import DietCodeError
from dietcode.trust.keys import KeyFormatError, PublicKey

FILE = "trust.json"
_MAX_BYTES = 8 << 20
_DIGEST = r"^sha256:[0-9a-f]{64}$"

How = Literal["first use", "given", "rotation", "lock file"]


def trust_dir() -> Path:
    """``$DIETCODE_TRUST``, or the user's settings folder."""
    given = os.environ.get("DIETCODE_TRUST")
    return Path(given).expanduser() if given else Path(platformdirs.user_config_dir("dietcode"))


def now_text(later_secs: float = 0.0) -> str:
    """The time, or some seconds later, in UTC, as ``2026-01-05T09:30:00Z``."""
    return (datetime.now(UTC) + timedelta(seconds=later_secs)).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class PinnedKey(_Model):
    """A pinned key.

    Attributes
    ----------
    public_key : str or None
        In PEM; None where only the fingerprint was given, until the server shows the key.
    state : str
        The server signs with ``current``; what an ``earlier`` one signed stays valid; a ``revoked`` one
        signs nothing any more.
    """

    fingerprint: str = Field(pattern=_DIGEST)
    public_key: str | None = None
    state: Literal["current", "earlier", "revoked"] = "current"
    how: How
    since: str = Field(default_factory=now_text)

    @property
    def key(self) -> PublicKey | None:
        """The key itself; None where it is not known, or not the one of the fingerprint."""
        try:
            found = PublicKey.from_pem(self.public_key or "")
        except KeyFormatError:
            return None
        return found if found.fingerprint == self.fingerprint else None


class ServerPins(_Model):
    """The keys and versions known of one server.

    Attributes
    ----------
    keys : list of PinnedKey
        One of them is current.
    expires : bool
        Whether its statements about the latest version were seen to expire: others are older, then.
    seen : dict
        By name, the highest version or sequence number seen: of an older statement none is ``latest``.
    latest : dict
        By name, the version that the newest of these statements calls the latest; lower than one before where
        that was yanked.
    """

    keys: list[PinnedKey]
    expires: bool = False
    seen: dict[str, int] = Field(default_factory=dict)
    latest: dict[str, int] = Field(default_factory=dict)

    @property
    def current(self) -> PinnedKey | None:
        """The key that the server signs with."""
        return next((pin for pin in self.keys if pin.state == "current"), None)

    def of(self, fingerprint: str) -> PinnedKey | None:
        """The pin of one key."""
        return next((pin for pin in self.keys if pin.fingerprint == fingerprint), None)


class Trusted(_Model):
    """The whole file: servers by URL, and keys that lock files name by fingerprint."""

    format: Literal["dietcode-trust/1"] = "dietcode-trust/1"
    servers: dict[str, ServerPins] = Field(default_factory=dict)
    locks: dict[str, PinnedKey] = Field(default_factory=dict)

    def of(self, fingerprint: str) -> PinnedKey | None:
        """The pin of a key, of any server or lock file; one that is revoked anywhere counts as revoked."""
        pins = [
            pin for server in self.servers.values() for pin in server.keys if pin.fingerprint == fingerprint
        ]
        pins += [self.locks[fingerprint]] if fingerprint in self.locks else []
        worst = [pin for pin in pins if pin.state == "revoked"]
        known = [pin for pin in pins if pin.key is not None]
        return next(iter(worst + known + pins), None)

    def is_revoked(self, fingerprint: str) -> bool:
        """Return whether a server has revoked this key of its own."""
        pin = self.of(fingerprint)
        return pin is not None and pin.state == "revoked"


class Pins:
    """The file; processes may share it."""

    def __init__(self) -> None:
        self.path = trust_dir() / FILE

    def read(self) -> Trusted:
        """Return what is trusted now; a file that is not there trusts nobody.

        Raises
        ------
        DietCodeError
            It cannot be read or understood; nothing is trusted on first use then.
        """
        try:
            if self.path.stat().st_size > _MAX_BYTES:
                raise DietCodeError(f"{self.path}: larger than {_MAX_BYTES >> 20} MiB; restore or remove it")
            return Trusted.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return Trusted()
        except OSError as error:
            raise self._failure("read", error) from error
        except (ValidationError, RecursionError) as error:
            raise DietCodeError(
                f"{self.path}: not what this version of dietcode writes ({type(error).__name__}); "
                "restore it, or remove it to trust servers anew"
            ) from None

    @contextmanager
    def changing(self) -> Iterator[Trusted]:
        """Yield what is trusted, to be changed in place; written at the end, at once, or not after an error.

        Raises
        ------
        DietCodeError
            As `read`, or it cannot be written.
        """
        lock = FileLock(self.path.with_suffix(".lock"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock.acquire()
        except OSError as error:
            raise self._failure("written", error) from error
        try:
            trusted = self.read()
            before = trusted.model_dump_json()
            yield trusted
            if trusted.model_dump_json() != before:
                self._write(trusted.model_dump_json(indent=2))
        finally:
            lock.release()

    def _write(self, text: str) -> None:
        staged: Path | None = None
        try:
            handle, name = tempfile.mkstemp(prefix=f".{FILE}-", dir=self.path.parent)
            staged = Path(name)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            staged.replace(self.path)
        except OSError as error:
            raise self._failure("written", error) from error
        finally:
            if staged is not None:
                staged.unlink(missing_ok=True)

    def _failure(self, done: str, error: OSError) -> DietCodeError:
        return DietCodeError(
            f"{error.filename or self.path}: cannot be {done}: {error.strerror or error}; "
            "DIETCODE_TRUST names another folder"
        )
