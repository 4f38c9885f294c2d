"""Manifests that were seen: (server, name, version) to digests. Manifest and signature are cached blobs."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, ValidationError

from dietcode.client.blobs import BlobCache, reported
from dietcode.client.listing import MAX_MANIFEST_BYTES
from dietcode.client.trusting import SignedManifest
from dietcode.protocol import FileFacts
from dietcode.runtime.cache import cache_dir
from dietcode.trust.envelope import MAX_ENVELOPE_BYTES


class _Known(BaseModel):
    server: str
    name: str
    version: int
    manifest: FileFacts
    signature: FileFacts


class KnownManifests:
    """The versions of one server that this cache has seen; they never change, so none expires."""

    def __init__(self, server: str, blobs: BlobCache) -> None:
        self._server = server
        self._blobs = blobs
        self._root = cache_dir() / "servers" / hashlib.sha256(server.encode()).hexdigest()[:16]

    def get(self, name: str, version: int) -> SignedManifest | None:
        """Return a manifest and its signature, or None where one is not cached or was altered."""
        try:
            known = _Known.model_validate_json(self._path(name, version).read_bytes())
        except (OSError, ValidationError):
            return None
        if (known.server, known.name, known.version) != (self._server, name, version):
            return None
        limits = {MAX_MANIFEST_BYTES: known.manifest, MAX_ENVELOPE_BYTES: known.signature}
        if any(facts.size_bytes > limit for limit, facts in limits.items()):
            return None
        manifest, envelope = self._blobs.read(known.manifest), self._blobs.read(known.signature)
        return None if manifest is None or envelope is None else SignedManifest(manifest, envelope)

    def newest(self, name: str) -> int | None:
        """Return the newest cached version."""
        versions = [path.stem for path in (self._root / name).glob("*.json") if path.stem.isdecimal()]
        return max(map(int, versions), default=None)

    def add(self, name: str, version: int, signed: SignedManifest) -> None:
        """Keep a manifest and its signature, both verified.

        Raises
        ------
        LibraryError
            It cannot be written.
        """
        known = _Known(
            server=self._server,
            name=name,
            version=version,
            manifest=self._blobs.add(signed.manifest),
            signature=self._blobs.add(signed.envelope),
        )
        path = self._path(name, version)
        with reported(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, staged = tempfile.mkstemp(prefix=".", suffix=".new", dir=path.parent)
            try:
                with os.fdopen(handle, "w") as stream:
                    json.dump(known.model_dump(), stream, indent=2)
                Path(staged).replace(path)
            finally:
                Path(staged).unlink(missing_ok=True)

    def _path(self, name: str, version: int) -> Path:
        return self._root / name / f"{version}.json"
