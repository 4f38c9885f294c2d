"""Folders of libraries and models, put together from what was verified; nothing is fetched twice."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dietcode.client import calls
from dietcode.client.blobs import BlobCache
from dietcode.client.known import KnownManifests
from dietcode.client.listing import ListedPart, Listing, digest_of, read_listing
from dietcode.client.lock import exclusive
from dietcode.client.transport import Transport
from dietcode.client.trusting import ServerTrust, SignedManifest
from dietcode.errors import LibraryError
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import (
    BLOBS,
    LIBRARIES,
    MANIFEST,
    SIGNATURE,
    blob_name,
    has_parts,
    kind_of_bundle,
    read_manifest,
    verify_file,
    write_folder,
)


@dataclass(frozen=True)
class Pulled:
    """A library that is on this machine now; `key` is the fingerprint of the one that signed it."""

    listing: Listing
    server: str
    folder: Path
    key: str


@dataclass(frozen=True)
class VerifiedListing:
    """A manifest whose signature holds."""

    listing: Listing
    signed: SignedManifest
    key: str


def cached_listing(
    known: KnownManifests, trust: ServerTrust, name: str, version: int
) -> VerifiedListing | None:
    """Return what was pulled before, if its signature is still that of a trusted key."""
    signed = known.get(name, version)
    key = None if signed is None else trust.known(signed, name, version)
    if signed is None or key is None:
        return None
    return VerifiedListing(read_listing(signed.manifest, name, version), signed, key.fingerprint)


def fetched_listing(
    known: KnownManifests, trust: ServerTrust, data: bytes, name: str, version: int, is_latest: bool
) -> VerifiedListing:
    """Verify a manifest that arrived, then read it, then keep it."""
    signed, key = trust.fetch(data, name, version, is_latest)
    listing = read_listing(data, name, version)
    known.add(name, version, signed)
    return VerifiedListing(listing, signed, key.fingerprint)


def assemble(transport: Transport, trust: ServerTrust, found: VerifiedListing, folder: Path | None) -> Pulled:
    """Fetch what is missing, and write the folder in the cache and the one asked for.

    Parameters
    ----------
    trust : ServerTrust
        The keys that may have signed the libraries of a bundle.
    found : VerifiedListing
    folder : Path or None
        Where to put it, complete with its runtime.

    Raises
    ------
    LibraryError
        What arrived is not what is listed, or is not signed by a trusted key; or it cannot be written.
    ServerError
        The server cannot be reached, or failed.
    """
    blobs, listing = BlobCache(), found.listing
    parts = {digest: _part(transport, trust, digest, one) for digest, one in listing.parts.items()}
    inner = {digest: assemble(transport, trust, part, None).folder for digest, part in parts.items()}
    runtime: dict[str, bytes] = {}
    for one in (found, *parts.values()):
        if one.listing.runtime is not None:
            path = blobs.fetch(one.listing.runtime, transport, f"{one.listing.label}: runtime")
            name = f"{BLOBS}/{blob_name(one.listing.runtime.sha256)}"
            if folder is not None and name not in runtime:
                runtime[name] = path.read_bytes()
    own = {MANIFEST: found.signed.manifest, SIGNATURE: found.signed.envelope}
    kept = _kept(found)
    with exclusive(kept):
        if not _is_there(kept, own):
            write_folder(kept, {**_files(transport, listing, inner), **own})
            try:
                _read_whole(kept)
            except LibraryError:
                shutil.rmtree(kept, ignore_errors=True)
                raise
    if folder is None:
        return Pulled(listing, transport.address.server, kept, found.key)
    with exclusive(folder):
        if not (_is_there(folder, own) and _has_runtimes(folder, [found, *parts.values()])):
            write_folder(folder, {**_files(transport, listing, inner), **own, **runtime})
            _read_whole(folder)
    return Pulled(listing, transport.address.server, folder, found.key)


def _part(transport: Transport, trust: ServerTrust, digest: str, listed: ListedPart) -> VerifiedListing:
    """Return a library that a bundle lists, from the cache or the server, signed by itself."""
    known = KnownManifests(transport.address.server, BlobCache())
    found = cached_listing(known, trust, listed.name, listed.version)
    if found is None or found.listing.manifest.sha256 != listed.manifest:
        data, _, _ = transport.send(calls.find_manifest(listed.name, listed.version))
        if digest_of(data) != listed.manifest:
            raise LibraryError(
                f"{listed.name}@{listed.version}: its manifest is {digest_of(data)}, the bundle lists "
                f"{listed.manifest}; nothing of it is used"
            )
        found = fetched_listing(known, trust, data, listed.name, listed.version, is_latest=False)
    if found.listing.parts:
        raise LibraryError(f"{found.listing.label}: a bundle in a bundle; allowed: libraries")
    return found


def _files(transport: Transport, listing: Listing, inner: Mapping[str, Path]) -> dict[str, bytes]:
    """Return all files of a folder but manifest, signature and runtime."""
    blobs = BlobCache()
    files = {path: _content(blobs, listing, path, transport) for path in sorted(listing.files)}
    for digest, folder in inner.items():
        for path in sorted(folder.iterdir()):
            files[f"{LIBRARIES}/{digest}/{path.name}"] = path.read_bytes()
    return files


def _read_whole(folder: Path) -> None:
    """Check all files of a folder by digest.

    Raises
    ------
    LibraryError
        One is missing or altered.
    """
    if not has_parts(folder):
        read_manifest(folder)
        return
    from dietcode.runtime.models.loading import read_bundle  # brings what runs libraries

    manifest = read_bundle(folder, kind_of_bundle(folder))
    for digest in manifest["libraries"]:
        read_manifest(folder / LIBRARIES / digest)


def _kept(found: VerifiedListing) -> Path:
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
        _read_whole(folder)
    except (OSError, LibraryError):
        return False
    return True


def _has_runtimes(folder: Path, listings: Sequence[VerifiedListing]) -> bool:
    """Return whether the runtimes are there that are needed."""
    for one in listings:
        runtime = one.listing.runtime
        if runtime is None:
            continue
        blob = folder / BLOBS / blob_name(runtime.sha256)
        try:
            verify_file(blob, {"bytes": runtime.size_bytes, "sha256": runtime.sha256})
        except LibraryError:
            return False
    return True
