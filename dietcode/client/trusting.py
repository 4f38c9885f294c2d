"""Whether what a server gave is what its key signed: pinned on first use, and followed when it rotates.

Nothing is written before all is verified: an altered answer leaves no trace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from dietcode.client import calls
from dietcode.client.transport import Transport
from dietcode.errors import LibraryError, NotFoundError
from dietcode.protocol import KeyList
from dietcode.trust.envelope import parse_envelope
from dietcode.trust.keys import KeyFormatError, PublicKey
from dietcode.trust.pins import How, PinnedKey, Pins, ServerPins, now_text
from dietcode.trust.rotation import follow, read_rotations
from dietcode.trust.statements import LibraryStatement, open_latest, open_library

REQUIRE_FRESH = "DIETCODE_REQUIRE_FRESH"
"""Set to 1: no answer about the latest version is taken that does not say when it expires."""


def print_line(text: str) -> None:
    """Print one line on stderr."""
    sys.stderr.write(f"dietcode: {text}\n")


@dataclass(frozen=True)
class SignedManifest:
    """A manifest and its envelope, byte for byte."""

    manifest: bytes
    envelope: bytes


@dataclass(frozen=True)
class _TrustedKey:
    """The key to verify with, and what to remember if it holds.

    Attributes
    ----------
    path : tuple of PublicKey
        From the key that was pinned to this one; empty for a key that was not known.
    """

    key: PublicKey
    path: tuple[PublicKey, ...] = field(default=())


class ServerTrust:
    """The keys that this machine trusts of one server.

    Parameters
    ----------
    lock_key : str, optional
        Fingerprint that a lock file names: the signature must be of that key or of one that it leads to, and
        no key is trusted on first use.
    lock_version : int
        What the lock file has of the library: an older version is no ``latest``.
    on_pin : callable
        Called with one line of text when a key is pinned or followed.
    """

    def __init__(
        self,
        transport: Transport,
        lock_key: str | None = None,
        lock_version: int = 0,
        on_pin: Callable[[str], None] = print_line,
    ) -> None:
        self._transport, self._on_pin = transport, on_pin
        self._lock_key, self._lock_version = lock_key, lock_version
        self._server = transport.address.server
        self._pins = Pins()

    def fetch(
        self, data: bytes, name: str, version: int, is_latest: bool
    ) -> tuple[SignedManifest, PublicKey]:
        """Fetch the signature of a manifest that arrived, and verify it.

        Parameters
        ----------
        data : bytes
            The manifest.
        name, version
            Of the library.
        is_latest : bool
            Whether the latest version was asked for.

        Raises
        ------
        LibraryError
            There is none, it is wrong, its key is not the one that is trusted, or `is_latest` and there
            was a newer version before.
        ServerError
            The server cannot be reached, or failed.
        """
        what = f"{name}@{version}"
        try:
            envelope = self._transport.send(calls.signature(name, version))
        except NotFoundError as error:
            raise LibraryError(
                f"{what}: the server gives no signature: {error}; nothing of it is used"
            ) from None
        signed, keyid = SignedManifest(data, envelope), parse_envelope(envelope, what).keyid
        trusted = self._pins.read()
        if trusted.is_revoked(keyid):
            raise LibraryError(
                f"{what}: signed with the key {keyid}, which is revoked; nothing of it is used"
            )
        pins = trusted.servers.get(self._server)
        found = self._key_of(keyid, pins, what)
        statement = _checked(signed, found.key, name, version)
        seen = self._highest_seen(pins, name)
        newest, expires = version, False
        if is_latest:
            newest, expires = self._check_latest(
                found.key, name, version, seen, pins is not None and pins.expires
            )
        self._remember(found, statement, newest, is_latest, expires)
        return signed, found.key

    def latest(self, name: str) -> int | None:
        """Return which version the server last signed to be the latest of a name; asks nobody."""
        pins = self._pins.read().servers.get(self._server)
        return None if pins is None else pins.latest.get(name)

    def _highest_seen(self, pins: ServerPins | None, name: str) -> int:
        """Return the highest version or sequence number that was seen of a name."""
        return max(self._lock_version, 0 if pins is None else pins.seen.get(name, 0))

    def _check_latest(
        self, key: PublicKey, name: str, version: int, seen: int, expires: bool
    ) -> tuple[int, bool]:
        """Check that a version is the latest now, not one that was so before.

        A server that is older than such statements gives none: there the latest version never falls.

        Parameters
        ----------
        key : PublicKey
        name, version
            What the server gives for the latest.
        seen : int
            The highest number that was seen of the name.
        expires : bool
            Whether what this server signed expired before: else it is an older statement.

        Returns
        -------
        int, bool
            The number to remember, and whether the statement expires.
        """
        try:
            envelope = self._transport.send(calls.head(name))
        except NotFoundError:
            sequence, ends = version, None
        else:
            head = open_latest(parse_envelope(envelope, name), key, name)
            if head.version != version:
                raise LibraryError(
                    f"{name}: {self._server} gives {name}@{version} for the latest, and signed that it is "
                    f"{name}@{head.version}; pull again"
                )
            sequence, ends = head.sequence, head.expires_at
            if head.is_over(now_text()):
                raise LibraryError(
                    f"{name}: what {self._server} signed about the latest version expired at {ends}: newer "
                    f"versions are withheld, or this machine's clock is wrong; pull {name}@{version} by its "
                    "number if it is meant"
                )
        if ends is None and (expires or os.environ.get(REQUIRE_FRESH) == "1"):
            raise LibraryError(
                f"{name}: what {self._server} signed about the latest version does not say when it expires, "
                f"so it may be any older answer; pull {name}@{version} by its number if it is meant"
            )
        if sequence < seen:
            raise LibraryError(
                f"{name}: {self._server} gives {name}@{version} for the latest, state {sequence} of it, and "
                f"state {seen} was seen before; pull {name}@{version} by its number if that is meant"
            )
        return sequence, ends is not None

    def known(self, signed: SignedManifest, name: str, version: int) -> PublicKey | None:
        """Return the key of something that was pulled before, if it is still trusted; asks nobody."""
        try:
            trusted = self._pins.read()
            keyid = parse_envelope(signed.envelope, name).keyid
            pins = trusted.servers.get(self._server)
            if trusted.is_revoked(keyid) or self._lock_key not in {None, keyid}:
                return None
            pin = pins.of(keyid) if pins is not None else trusted.locks.get(keyid)
            if pin is None or pin.key is None or (pins is None and self._lock_key is None):
                return None
            _checked(signed, pin.key, name, version)
        except LibraryError:
            return None
        return pin.key

    def _key_of(self, keyid: str, pins: ServerPins | None, what: str) -> _TrustedKey:
        """The key that an envelope names, if there is a reason to trust it."""
        shown = _Shown(self._transport)
        if pins is not None:
            found = self._pinned(keyid, pins, shown, what)
        elif self._lock_key is None:
            found = _TrustedKey(shown.current(keyid, what))
        else:
            found = _TrustedKey(shown.key(keyid, what))
        if self._lock_key not in {None, keyid}:
            start = shown.key(str(self._lock_key), what)
            if shown.path(start, keyid) is None:
                raise LibraryError(
                    f"{what}: signed with the key {keyid}, the lock file names {self._lock_key}; "
                    "ask who published it, or delete the entry to lock it anew"
                )
        return found

    def _pinned(self, keyid: str, pins: ServerPins, shown: _Shown, what: str) -> _TrustedKey:
        """The pinned key, or the one that it leads to."""
        pin = pins.current
        if pin is not None:
            start = pin.key or shown.key(pin.fingerprint, what)
            path = [start] if pin.fingerprint == keyid else None
            if path is None and pins.of(keyid) is not None:
                raise LibraryError(
                    f"{what}: signed with the key {keyid}, an earlier one of {self._server}; "
                    f"it signs with {pin.fingerprint} now; if whoever runs the server confirms the other: "
                    f"`dietcode trust {self._server} --key {keyid}`"
                )
            path = path or shown.path(start, keyid)
            if path is not None:
                return _TrustedKey(path[-1], tuple(path))
        expected = pin.fingerprint if pin is not None else "none"
        raise LibraryError(
            f"{what}: {self._server} signed it with the key {keyid}, but {expected} is pinned and names no "
            "successor; if whoever runs the server confirms the new key: "
            f"`dietcode trust {self._server} --key {keyid}`"
        )

    def _remember(
        self,
        found: _TrustedKey,
        statement: LibraryStatement,
        newest: int,
        is_latest: bool,
        expires: bool,
    ) -> None:
        """Pin the key, and note what the statement says; writes nothing where nothing is new.

        Parameters
        ----------
        found : _TrustedKey
        statement : LibraryStatement
            Which version of which name it is.
        newest : int
            Sequence number of the statement about the latest version.
        is_latest : bool
            Whether this version is the latest.
        expires : bool
            Whether that statement says when it expires.
        """
        key = found.key
        latest = {statement.name: statement.version} if is_latest else {}
        if self._lock_key is None and self._is_known(found, statement, newest, latest, expires):
            return
        with self._pins.changing() as trusted:
            pins = trusted.servers.get(self._server)
            if pins is None and self._lock_key is not None:
                trusted.locks.setdefault(key.fingerprint, _pin(key, "lock file"))
                return
            is_new = pins is None
            pins = pins or ServerPins(keys=[_pin(key, "first use")])
            before = pins.current
            if before is None or key.fingerprint != before.fingerprint:
                self._move(pins, found, statement.label)
            elif before.public_key is None:
                before.public_key = key.pem
            for pin in pins.keys:
                if pin.fingerprint in statement.revoked:
                    pin.state = "revoked"
            seen = max(pins.seen.get(statement.name, 0), newest)
            if newest >= seen:  # another process may have seen a newer statement meanwhile
                pins.latest = pins.latest | latest
            pins.expires = pins.expires or expires
            pins.seen = pins.seen | {statement.name: seen}
            trusted.servers = trusted.servers | {self._server: pins}
        if is_new:
            self._on_pin(
                f"{self._server}: trusted from now on with the key {key.fingerprint} (first use; "
                "`dietcode key list` shows it on the server)"
            )
        elif len(found.path) > 1:
            self._on_pin(f"{self._server}: its key is now {key.fingerprint}, as the one before it signed")

    def _is_known(
        self,
        found: _TrustedKey,
        statement: LibraryStatement,
        newest: int,
        latest: dict[str, int],
        expires: bool,
    ) -> bool:
        """Return whether all of it stands in the file already.

        Parameters
        ----------
        found, statement, newest, expires
            As `_remember` has them.
        latest : dict of str to int
            By name.
        """
        pins = self._pins.read().servers.get(self._server)
        pin = None if pins is None else pins.current
        if pins is None or pin is None or pin.key != found.key:
            return False
        untold = [one for one in pins.keys if one.fingerprint in statement.revoked and one.state != "revoked"]
        is_seen = pins.seen.get(statement.name, 0) >= newest
        return not untold and is_seen and expires <= pins.expires and pins.latest | latest == pins.latest

    def _move(self, pins: ServerPins, found: _TrustedKey, what: str) -> None:
        """Make the end of a path the current key; the pins may have changed since it was walked."""
        before = pins.current
        names = [key.fingerprint for key in found.path]
        if before is None or before.fingerprint not in names:
            raise LibraryError(f"{what}: another key of {self._server} was pinned meanwhile; pull again")
        before.public_key, before.state = found.path[names.index(before.fingerprint)].pem, "earlier"
        after = found.path[names.index(before.fingerprint) + 1 :]
        pins.keys += [_pin(key, "rotation", is_current=key == found.key) for key in after]


class _Shown:
    """The keys that a server shows, asked for once, when they are needed; none is trusted by that."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._list: KeyList | None = None

    def current(self, keyid: str, what: str) -> PublicKey:
        """The key that the server says to sign with, if that is the one wanted."""
        if self._keys().current != keyid:
            raise LibraryError(
                f"{what}: signed with the key {keyid}, but the server shows another as its own; try again"
            )
        return self.key(keyid, what)

    def key(self, fingerprint: str, what: str) -> PublicKey:
        """The key with a fingerprint."""
        for shown in self._keys().keys:
            if shown.fingerprint == fingerprint:
                try:
                    key = PublicKey.from_pem(shown.public_key)
                except KeyFormatError as error:
                    raise LibraryError(
                        f"{what}: the key {fingerprint} that the server shows: {error}"
                    ) from None
                if key.fingerprint == fingerprint:
                    return key
        raise LibraryError(f"{what}: signed with the key {fingerprint}, which the server does not show")

    def path(self, start: PublicKey, goal: str) -> list[PublicKey] | None:
        """Return the keys from one to another, each signed by the one before; None where there is no path."""
        server = self._transport.address.server
        return follow(start, goal, read_rotations(self._keys().rotations, server), server)

    def _keys(self) -> KeyList:
        if self._list is None:
            self._list = self._transport.send(calls.keys())
        return self._list


def _checked(signed: SignedManifest, key: PublicKey, name: str, version: int) -> LibraryStatement:
    """Verify, and compare with what was asked for."""
    what = f"{name}@{version}"
    statement = open_library(parse_envelope(signed.envelope, what), key, signed.manifest, what)
    if (statement.name, statement.version) != (name, version):
        raise LibraryError(f"{what}: the signature is that of {statement.label}")
    return statement


def _pin(key: PublicKey, how: How, is_current: bool = True) -> PinnedKey:
    pin = PinnedKey(fingerprint=key.fingerprint, public_key=key.pem, how=how)
    return pin if is_current else pin.model_copy(update={"state": "earlier"})
