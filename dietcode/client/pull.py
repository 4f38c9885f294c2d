"""Getting a library: manifest, files, runtime; each checked against its digest, none fetched twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
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
from dietcode.errors import LibraryError, RequestError
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import (
    BLOBS,
    MANIFEST,
    blob_name,
    check_writable,
    read_manifest,
    verify_file,
    write_folder,
)

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Pulled:
    """A library that is on this machine now."""

    listing: Listing
    server: str
    folder: Path


def pull(transport: Transport, ref: str, folder: str | os.PathLike[str] | None, warn: Warn) -> Pulled:
    """Get ``NAME[@VERSION]`` from the cache or the server.

    Parameters
    ----------
    folder : path, optional
        Where to put it, complete with its runtime; by default a place in the cache.
    warn : callable
        Told when the server cannot say which version is the latest, and the newest cached one is used.

    Raises
    ------
    RequestError
        `ref` is none, or there is no such library or version.
    LibraryError
        What arrived is not what the manifest lists, or cannot be written.
    ServerError
        The server cannot be reached, or failed.
    """
    name, version = calls.parse_ref(ref)
    place = _checked_place(folder)
    data, version = _manifest(transport, name, version, warn)
    listing = read_listing(data, name, version)
    return _put_together(transport, listing, data, place)


def pull_and_lock(
    transport: Transport, ref: str, folder: str | os.PathLike[str] | None, lock: Path, warn: Warn
) -> Pulled:
    """Get a library and write it to a lock file; raises as `pull`.

    A version that the lock file has from the same server with other content is refused.
    """
    name, version = calls.parse_ref(ref)
    place = _checked_place(folder)
    locked = read_lock(lock).get(name)
    data, version = _manifest(transport, name, version, warn)
    if locked and (locked.version, locked.server) == (version, transport.address.server):
        _check_locked(data, f"{name}@{version}", locked)
    done = _put_together(transport, read_listing(data, name, version), data, place)
    update_lock(lock, name, entry_of(done.listing, done.server, place, lock))
    return done


def install(lock: Path, server: str | None, token: str | None, timeout_secs: float = 30.0) -> list[Pulled]:
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
            done.append(_install_one(transport, name, entry, lock))
        finally:
            transport.close()
    return done


def _install_one(transport: Transport, name: str, entry: LockEntry, lock: Path) -> Pulled:
    place = _checked_place(folder_of(entry, lock))
    label = f"{name}@{entry.version}"
    data = BlobCache().read(entry.manifest)
    if data is None:
        data = transport.send(calls.manifest(name, entry.version)).data
        _check_locked(data, label, entry)
        KnownManifests(transport.address.server, BlobCache()).put(name, entry.version, data)
    listing = read_listing(data, name, entry.version)
    if not entry.fits(listing):
        raise LibraryError(
            f"{lock}: {label}: files or runtime do not fit the manifest {entry.manifest.sha256}"
        )
    return _put_together(transport, listing, data, place)


def _check_locked(data: bytes, label: str, entry: LockEntry) -> None:
    found = digest_of(data)
    if found != entry.manifest.sha256:
        raise LibraryError(
            f"{label}: the server's manifest is {found}, the lock file says {entry.manifest.sha256}; "
            "ask who published it, or delete the entry to accept it"
        )


def _checked_place(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    check_writable(Path(folder))
    return Path(folder)


def _manifest(transport: Transport, name: str, version: int | None, warn: Warn) -> tuple[bytes, int]:
    """A manifest's bytes and version: the cache knows every fixed version, the server the latest."""
    known = KnownManifests(transport.address.server, BlobCache())
    if version is not None:
        cached = known.get(name, version)
        if cached is not None:
            return cached, version
    try:
        data, found = transport.send(calls.manifest(name, version))
    except UnreachableError as error:
        newest = known.newest(name) if version is None else None
        cached = known.get(name, newest) if newest is not None else None
        if newest is None or cached is None:
            raise
        warn(f"{error}; using {name}@{newest} from the cache, there may be a newer one")
        return cached, newest
    read_listing(data, name, found)
    known.put(name, found, data)
    return data, found


def _put_together(transport: Transport, listing: Listing, data: bytes, place: Path | None) -> Pulled:
    """Fetch what is missing, and write the folder in the cache and the one asked for."""
    blobs = BlobCache()
    runtime = blobs.fetch(listing.runtime, transport, f"{listing.label}: runtime")
    kept = cache_dir() / "libraries" / listing.manifest.sha256.removeprefix("sha256:") / listing.name
    with exclusive(kept):
        if not _is_there(kept, data):
            files = {MANIFEST: data} | {
                path: _content(blobs, listing, path, transport) for path in sorted(listing.files)
            }
            write_folder(kept, files)
            try:
                read_manifest(kept)
            except LibraryError:
                shutil.rmtree(kept, ignore_errors=True)
                raise
    if place is None:
        return Pulled(listing, transport.address.server, kept)
    blob = f"{BLOBS}/{blob_name(listing.runtime.sha256)}"
    with exclusive(place):
        if not (_is_there(place, data) and _has(place / blob, listing)):
            files = {path: _content(blobs, listing, path, transport) for path in sorted(listing.files)}
            write_folder(place, {**files, MANIFEST: data, blob: runtime.read_bytes()})
            read_manifest(place)
    return Pulled(listing, transport.address.server, place)


def _content(blobs: BlobCache, listing: Listing, path: str, transport: Transport) -> bytes:
    facts, what = listing.files[path], f"{listing.label}: {path}"
    blobs.fetch(facts, transport, what)
    data = blobs.read(facts)
    if data is None:
        raise LibraryError(f"{what}: was altered in the cache while it was read; pull again")
    return data


def _is_there(folder: Path, manifest: bytes) -> bool:
    """Whether a folder is this library already, whole and unaltered."""
    try:
        if (folder / MANIFEST).read_bytes() != manifest:
            return False
        read_manifest(folder)
    except (OSError, LibraryError):
        return False
    return True


def _has(blob: Path, listing: Listing) -> bool:
    try:
        verify_file(blob, {"bytes": listing.runtime.size_bytes, "sha256": listing.runtime.sha256})
    except LibraryError:
        return False
    return True
