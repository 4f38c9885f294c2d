"""Getting a library: manifest, signature, files, runtime; checked before use, none fetched twice."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

from dietcode.client import calls
from dietcode.client.address import Address
from dietcode.client.answers import UnreachableError
from dietcode.client.assembling import Pulled, VerifiedListing, assemble, cached_listing, fetched_listing
from dietcode.client.blobs import BlobCache
from dietcode.client.known import KnownManifests
from dietcode.client.listing import digest_of
from dietcode.client.lock import LockEntry, check_weights, entry_of, folder_of, read_lock, update_lock
from dietcode.client.transport import Transport
from dietcode.client.trusting import ServerTrust
from dietcode.errors import LibraryError, RequestError
from dietcode.runtime.manifest import (
    check_writable,
)

Warn = Callable[[str], None]


def pull(transport: Transport, ref: str, folder: str | os.PathLike[str] | None, warn: Warn) -> Pulled:
    """Get ``NAME[@VERSION]`` from the cache or the server.

    Parameters
    ----------
    folder : path, optional
        Where to put it, complete with its runtime; by default a folder in the cache.
    warn : callable
        Told when the server cannot say which version is the latest, and the newest cached one is used; and
        when the server says that a version is yanked.

    Raises
    ------
    RequestError
        `ref` is not the name of a library, or there is no such library or version.
    LibraryError
        It is not signed by the server's key, what arrived is not what the manifest lists, or it cannot be
        written.
    ServerError
        The server cannot be reached, or failed.
    """
    name, version = calls.parse_ref(ref)
    folder = _checked_folder(folder)
    found, trust = _find(transport, name, version, warn, None)
    return assemble(transport, trust, found, folder)


def pull_and_lock(
    transport: Transport, ref: str, folder: str | os.PathLike[str] | None, lock: Path, warn: Warn
) -> Pulled:
    """Get a library and write it to a lock file; raises as `pull`.

    A version that the lock file has from the same server with other content, or by another key, is refused.
    So are weights of that name with other content than is locked.

    Parameters
    ----------
    transport : Transport
        To the server.
    ref : str
        ``name`` for the latest version, or ``name@version``.
    folder : path or None
        Where to put it, complete with its runtime; None for a folder in the cache.
    lock : path
        The lock file, which gets an entry or has it replaced.
    warn : callable
        As of `pull`.
    """
    name, version = calls.parse_ref(ref)
    folder = _checked_folder(folder)
    check_weights(lock, name)
    locked = read_lock(lock).get(name)
    if locked and locked.server != transport.address.server:
        locked = None
    found, trust = _find(transport, name, version, warn, locked)
    if locked and locked.version == found.listing.version:
        _check_locked(found.signed.manifest, found.listing.label, locked)
    done = assemble(transport, trust, found, folder)
    update_lock(lock, name, entry_of(done.listing, done.server, folder, lock, done.key))
    return done


def install(
    lock: Path,
    server: str | None,
    token: str | None,
    timeout_secs: float = 30.0,
    warn: Warn = warnings.warn,
) -> list[Pulled]:
    """Get everything in a lock file, exactly as it is listed there.

    Parameters
    ----------
    server : str, optional
        Where to get it, in place of ``$DIETCODE_SERVER``, or of the servers in the lock file where that is
        not set either. The token goes only to a server that was named outside the lock file.

    Raises
    ------
    RequestError
        There is no lock file.
    LibraryError
        The server has other content than is listed.
    """
    entries = read_lock(lock)
    if not entries:
        raise RequestError(f"{lock}: no libraries are locked here; give NAME[@VERSION] to pull one")
    given = server or os.environ.get("DIETCODE_SERVER")
    own = Address.of(given, token)
    done = []
    for name, entry in sorted(entries.items()):
        address = own if given or entry.server == own.server else Address(entry.server)
        transport = Transport(address, timeout_secs)
        try:
            done.append(_install_one(transport, name, entry, lock, warn))
        finally:
            transport.close()
    return done


def _install_one(transport: Transport, name: str, entry: LockEntry, lock: Path, warn: Warn) -> Pulled:
    folder = _checked_folder(folder_of(entry, lock))
    check_weights(lock, name)
    label = f"{name}@{entry.version}"
    known = KnownManifests(transport.address.server, BlobCache())
    trust = ServerTrust(transport, entry.key)
    found = cached_listing(known, trust, name, entry.version)
    if found is None or found.listing.manifest != entry.manifest:
        data, _, yanked = transport.send(calls.find_manifest(name, entry.version))
        _check_locked(data, label, entry)
        _warn_of_yank(label, yanked, warn)
        found = fetched_listing(known, trust, data, name, entry.version, is_latest=False)
    if not entry.fits(found.listing):
        raise LibraryError(
            f"{lock}: {label}: files or runtime do not fit the manifest {entry.manifest.sha256}"
        )
    return assemble(transport, trust, found, folder)


def _check_locked(data: bytes, label: str, entry: LockEntry) -> None:
    found = digest_of(data)
    if found != entry.manifest.sha256:
        raise LibraryError(
            f"{label}: the server's manifest is {found}, the lock file says {entry.manifest.sha256}; "
            "ask who published it, or delete the entry to accept it"
        )


def _checked_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    check_writable(Path(folder))
    return Path(folder)


def _find(
    transport: Transport, name: str, version: int | None, warn: Warn, locked: LockEntry | None
) -> tuple[VerifiedListing, ServerTrust]:
    """A manifest whose signature holds: the cache knows every fixed version, the server the latest."""
    known = KnownManifests(transport.address.server, BlobCache())
    trust = ServerTrust(transport, locked.key, locked.version) if locked else ServerTrust(transport)
    cached = None if version is None else cached_listing(known, trust, name, version)
    if cached is not None:
        return cached, trust
    try:
        data, number, yanked = transport.send(calls.find_manifest(name, version))
    except UnreachableError as error:
        newest = (trust.latest(name) or known.newest(name)) if version is None else None
        cached = cached_listing(known, trust, name, newest) if newest is not None else None
        if cached is None:
            raise
        warn(f"{error}; using {cached.listing.label} from the cache, there may be a newer one")
        return cached, trust
    found = fetched_listing(known, trust, data, name, number, is_latest=version is None)
    _warn_of_yank(found.listing.label, yanked, warn)
    return found, trust


def _warn_of_yank(label: str, yanked: str, warn: Warn) -> None:
    if yanked:
        warn(f"{label} was yanked on {yanked}: who published it advises against it; choose another version")
