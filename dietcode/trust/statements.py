"""Signed statements: which manifest is a version of a name, which one is the latest, which key is next.

A manifest cannot hold its version, which is given when it is published; so a small statement says
both, and names the manifest by digest and size. Statements are canonical JSON (RFC 8785).
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal, TypeVar

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dietcode.errors import LibraryError
from dietcode.trust.envelope import Envelope, seal
from dietcode.trust.keys import PublicKey, SigningKey
from dietcode.workload.text import clip

LIBRARY_PAYLOAD = "application/vnd.dietcode.manifest+json"
LATEST_PAYLOAD = "application/vnd.dietcode.latest+json"
ROTATION_PAYLOAD = "application/vnd.dietcode.key-rotation+json"
_DIGEST = r"^sha256:[0-9a-f]{64}$"
_MAX_REVOKED = 1000

S = TypeVar("S", bound="_Statement")


class _Statement(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def to_bytes(self) -> bytes:
        """Return canonical JSON."""
        return bytes(rfc8785.dumps(self.model_dump()))


class ManifestFacts(_Statement):
    """Digest and size of a ``manifest.json``, named as manifests name files."""

    sha256: str = Field(pattern=_DIGEST)
    bytes: int = Field(ge=0, le=2**53 - 1)


class LibraryStatement(_Statement):
    """A statement that a manifest is a version of a name.

    Attributes
    ----------
    issued_at : str
        When it was signed, for people; nothing depends on it.
    revoked : list of str
        Fingerprints of keys that the server has revoked; each download carries them.
    """

    type: Literal["dietcode-library-version/1"] = "dietcode-library-version/1"
    name: str
    version: int = Field(ge=1, le=2**31 - 1)
    manifest: ManifestFacts
    issued_at: str
    revoked: list[str] = Field(default_factory=list, max_length=_MAX_REVOKED)

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"


class LatestStatement(_Statement):
    """A statement that a version is the latest of a name now.

    Attributes
    ----------
    sequence : int
        Grows with each version of the name that is published, yanked or taken back, and is no less than any
        version: of two statements the one with the lower number is older.
    expires_at: str or None
        In UTC: it says nothing about later times. None in those of the first type, of older servers.
    """

    type: Literal["dietcode-latest/1", "dietcode-latest/2"] = "dietcode-latest/1"
    name: str
    version: int = Field(ge=1, le=2**31 - 1)
    sequence: int = Field(ge=1, le=2**31 - 1)
    issued_at: str
    expires_at: str | None = Field(None, pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    @model_validator(mode="after")
    def _expires_by_type(self) -> LatestStatement:
        if (self.type == "dietcode-latest/2") != (self.expires_at is not None):
            raise ValueError("the second type expires, the first does not")
        return self

    def to_bytes(self) -> bytes:
        """As of other statements; the first type has no field for its end."""
        return bytes(rfc8785.dumps(self.model_dump(exclude_none=True)))

    def is_over(self, now: str) -> bool:
        """Whether it has expired, by the time of `dietcode.trust.pins.now_text`."""
        return self.expires_at is not None and self.expires_at < now


class RotationStatement(_Statement):
    """A statement of the older key that another one signs from now on.

    Attributes
    ----------
    old : str
        Fingerprint of the key that signs this.
    new : str
        The key that follows, in PEM.
    """

    type: Literal["dietcode-key-rotation/1"] = "dietcode-key-rotation/1"
    old: str = Field(pattern=_DIGEST)
    new: str
    issued_at: str


def sign_library(key: SigningKey, statement: LibraryStatement) -> Envelope:
    """Sign which manifest a version is."""
    return seal(key, LIBRARY_PAYLOAD, statement.to_bytes())


def sign_latest(key: SigningKey, statement: LatestStatement) -> Envelope:
    """Sign which version is the latest."""
    return seal(key, LATEST_PAYLOAD, statement.to_bytes())


def sign_rotation(old: SigningKey, new: PublicKey, issued_at: str) -> Envelope:
    """Sign the next key with the one that it replaces."""
    statement = RotationStatement(old=old.public.fingerprint, new=new.pem, issued_at=issued_at)
    return seal(old, ROTATION_PAYLOAD, statement.to_bytes())


def open_library(envelope: Envelope, key: PublicKey, manifest: bytes, what: str) -> LibraryStatement:
    """Verify an envelope, and that it is about these bytes.

    Parameters
    ----------
    envelope : Envelope
    key : PublicKey
        The key that must have signed it.
    manifest : bytes
        As it arrived.
    what : str
        Named by errors, like ``bert-dense@3``.

    Raises
    ------
    LibraryError
        The signature is wrong, or is of another manifest.
    """
    payload = envelope.payload_of(key, LIBRARY_PAYLOAD, what)
    statement = _read(LibraryStatement, payload, what)
    if key.fingerprint in statement.revoked:
        raise LibraryError(f"{what}: the key {key.fingerprint} revokes itself; ask who runs the server")
    facts, found = statement.manifest, f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    if (len(manifest), found) != (facts.bytes, facts.sha256):
        raise LibraryError(
            f"{what}: the manifest has {len(manifest)} bytes, {found}; "
            f"signed are {facts.bytes} bytes, {facts.sha256}"
        )
    return statement


def open_latest(envelope: Envelope, key: PublicKey, name: str) -> LatestStatement:
    """Verify what is said to be the latest version of a name.

    Raises
    ------
    LibraryError
        The signature is wrong, or it is about another name.
    """
    statement = _read(LatestStatement, envelope.payload_of(key, LATEST_PAYLOAD, name), name)
    if statement.name != name:
        raise LibraryError(f"{name}: what is signed is the latest version of {clip(statement.name, 64)}")
    return statement


def open_rotation(envelope: Envelope, key: PublicKey, what: str) -> PublicKey:
    """Verify that `key` names a key to follow it, and return that.

    Raises
    ------
    DietCodeError
        The signature is wrong, or what it names is no key.
    """
    statement = _read(RotationStatement, envelope.payload_of(key, ROTATION_PAYLOAD, what), what)
    if statement.old != key.fingerprint:
        raise LibraryError(f"{what}: the rotation is from {statement.old}; allowed: {key.fingerprint}")
    return PublicKey.from_pem(statement.new)


def read_unverified(envelope: Envelope) -> LibraryStatement:
    """Return the statement of an envelope unverified, for the server that made it."""
    return _read(LibraryStatement, envelope.payload, "a kept signature")


def _read(kind: type[S], payload: bytes, what: str) -> S:
    try:
        statement = kind.model_validate(json.loads(payload))
        if statement.to_bytes() == payload:
            return statement
        reason = "not canonical"
    except (ValidationError, ValueError, RecursionError) as error:
        reason = type(error).__name__
    raise LibraryError(
        f"{what}: what is signed is no {kind.__name__} of this version ({reason}): {clip(payload, 60)}"
    )
