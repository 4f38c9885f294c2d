"""Getting a library: manifest, signature, files, runtime; checked before use, none fetched twice."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dietcode.client import calls
from dietcode.client.address import Address
from dietcode.client.answers import UnreachableError
from dietcode.client.blobs import BlobCache
from dietcode.client.known import KnownManifests
from dietcode.client.listing import Listing, digest_of, read_listing
from dietcode.client.lock import LockEntry, entry_of, exclusive, folder_of, read_lock, update_lock
from dietcode.client.transport import Transport
from dietcode.client.trusting import ServerTrust, SignedManifest
from dietcode.errors import LibraryError, RequestError
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import (
    BLOBS,
    MANIFEST,
    SIGNATURE,
    blob_name,
    check_writable,
    read_manifest,
    verify_file,
    write_folder,
)

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Pulled:
    """A library that is on this machine now; `key` is the fingerprint of the one that signed it."""

    listing: Listing
    server: str
    folder: Path
    key: str


@dataclass(frozen=True)
class _Verified:
    """A manifest whose signature holds."""

    listing: Listing
    signed: SignedManifest
    key: str


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
    return _assemble(transport, _find(transport, name, version, warn, None), folder)


def pull_and_lock(
    transport: Transport, ref: str, folder: str | os.PathLike[str] | None, lock: Path, warn: Warn
) -> Pulled:
    """Get a library and write it to a lock file; raises as `pull`.

    A version that the lock file has from the same server with other content, or by another key, is refused.

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
    locked = read_lock(lock).get(name)
    if locked and locked.server != transport.address.server:
        locked = None
    found = _find(transport, name, version, warn, locked)
    if locked and locked.version == found.listing.version:
        _check_locked(found.signed.manifest, found.listing.label, locked)
    done = _assemble(transport, found, folder)
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
    label = f"{name}@{entry.version}"
    known = KnownManifests(transport.address.server, BlobCache())
    trust = ServerTrust(transport, entry.key)
    found = _cached(known, trust, name, entry.version)
    if found is None or found.listing.manifest != entry.manifest:
        data, _, yanked = transport.send(calls.find_manifest(name, entry.version))
        _check_locked(data, label, entry)
        _warn_of_yank(label, yanked, warn)
        found = _fetched(known, trust, data, name, entry.version, is_latest=False)
    if not entry.fits(found.listing):
        raise LibraryError(
            f"{lock}: {label}: files or runtime do not fit the manifest {entry.manifest.sha256}"
        )
    return _assemble(transport, found, folder)


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
) -> _Verified:
    """A manifest whose signature holds: the cache knows every fixed version, the server the latest."""
    known = KnownManifests(transport.address.server, BlobCache())
    trust = ServerTrust(transport, locked.key, locked.version) if locked else ServerTrust(transport)
    cached = None if version is None else _cached(known, trust, name, version)
    if cached is not None:
        return cached
    try:
        data, number, yanked = transport.send(calls.find_manifest(name, version))
    except UnreachableError as error:
        newest = known.newest(name) if version is None else None
        cached = _cached(known, trust, name, newest) if newest is not None else None
        if cached is None:
            raise
        warn(f"{error}; using {cached.listing.label} from the cache, there may be a newer one")
        return cached
    found = _fetched(known, trust, data, name, number, is_latest=version is None)
    _warn_of_yank(found.listing.label, yanked, warn)
    return found


def _warn_of_yank(label: str, yanked: str, warn: Warn) -> None:
    if yanked:
        warn(f"{label} was yanked on {yanked}: who published it advises against it; choose another version")


def _cached(known: KnownManifests, trust: ServerTrust, name: str, version: int) -> _Verified | None:
    """Return what was pulled before, if its signature is still that of a trusted key."""
    signed = known.get(name, version)
    key = None if signed is None else trust.known(signed, name, version)
    if signed is None or key is None:
        return None
    return _Verified(read_listing(signed.manifest, name, version), signed, key.fingerprint)


def _fetched(
    known: KnownManifests, trust: ServerTrust, data: bytes, name: str, version: int, is_latest: bool
) -> _Verified:
    """Verify a manifest that arrived, then read it, then keep it."""
    signed, key = trust.fetch(data, name, version, is_latest)
    listing = read_listing(data, name, version)
    known.add(name, version, signed)
    return _Verified(listing, signed, key.fingerprint)


def _assemble(transport: Transport, found: _Verified, folder: Path | None) -> Pulled:
    """Fetch what is missing, and write the folder in the cache and the one asked for."""
    blobs, listing, signed = BlobCache(), found.listing, found.signed
    runtime: dict[str, bytes] = {}
    if listing.runtime is not None:
        path = blobs.fetch(listing.runtime, transport, f"{listing.label}: runtime")
        runtime = {f"{BLOBS}/{blob_name(listing.runtime.sha256)}": path.read_bytes()} if folder else {}
    own = {MANIFEST: signed.manifest, SIGNATURE: signed.envelope}
    kept = _kept(found)
    with exclusive(kept):
        if not _is_there(kept, own):
            files = own | {path: _content(blobs, listing, path, transport) for path in sorted(listing.files)}
            write_folder(kept, files)
            try:
                read_manifest(kept)
            except LibraryError:
                shutil.rmtree(kept, ignore_errors=True)
                raise
    if folder is None:
        return Pulled(listing, transport.address.server, kept, found.key)
    with exclusive(folder):
        if not (_is_there(folder, own) and _has_runtime(folder, listing)):
            files = {path: _content(blobs, listing, path, transport) for path in sorted(listing.files)}
            write_folder(folder, {**files, **own, **runtime})
            read_manifest(folder)
    return Pulled(listing, transport.address.server, folder, found.key)


def _kept(found: _Verified) -> Path:
    """The folder in the cache of this manifest as this signature signs it, so that none is ever rewritten."""
    manifest = found.listing.manifest.sha256.removeprefix("sha256:")
    envelope = digest_of(found.signed.envelope).removeprefix("sha256:")
    return cache_dir() / "libraries" / f"{manifest}-{envelope[:16]}" / found.listing.name


def _content(blobs: BlobCache, listing: Listing, path: str, transport: Transport) -> bytes:
    facts, what = listing.files[path], f"{listing.label}: {path}"
    blobs.fetch(facts, transport, what)
    data = blobs.read(facts)
    if data is None:
        raise LibraryError(f"{what}: was altered in the cache while it was read; pull again")
    return data


def _is_there(folder: Path, own: Mapping[str, bytes]) -> bool:
    """Return whether a folder is this library already, whole and unaltered."""
    try:
        if any((folder / name).read_bytes() != data for name, data in own.items()):
            return False
        read_manifest(folder)
    except (OSError, LibraryError):
        return False
    return True


def _has_runtime(folder: Path, listing: Listing) -> bool:
    """Return whether the runtime is there, where one is needed."""
    if listing.runtime is None:
        return True
    blob = folder / BLOBS / blob_name(listing.runtime.sha256)
    try:
        verify_file(blob, {"bytes": listing.runtime.size_bytes, "sha256": listing.runtime.sha256})
    except LibraryError:
        return False
    return True
