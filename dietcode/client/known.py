"""Which manifests were seen: (server, name, version) to digest. The manifest itself is a cached blob."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, ValidationError

from dietcode.client.blobs import BlobCache, reported
from dietcode.client.listing import MAX_MANIFEST_BYTES
from dietcode.protocol import FileFacts
from dietcode.runtime.cache import cache_dir


class _Known(BaseModel):
    server: str
    name: str
    version: int
    manifest: FileFacts


class KnownManifests:
    """The versions of one server that this cache has seen; they never change, so none expires."""

    def __init__(self, server: str, blobs: BlobCache) -> None:
        self._server = server
        self._blobs = blobs
        self._root = cache_dir() / "servers" / hashlib.sha256(server.encode()).hexdigest()[:16]

    def get(self, name: str, version: int) -> bytes | None:
        """Return a manifest, or None where it is not cached or was altered."""
        try:
            known = _Known.model_validate_json(self._path(name, version).read_bytes())
        except (OSError, ValidationError):
            return None
        if (known.server, known.name, known.version) != (self._server, name, version):
            return None
        return self._blobs.read(known.manifest) if known.manifest.size_bytes <= MAX_MANIFEST_BYTES else None

    def newest(self, name: str) -> int | None:
        """Return the newest cached version."""
        versions = [path.stem for path in (self._root / name).glob("*.json") if path.stem.isdecimal()]
        return max(map(int, versions), default=None)

    def put(self, name: str, version: int, data: bytes) -> None:
        """Keep a manifest.

        Raises
        ------
        LibraryError
            It cannot be written.
        """
        known = _Known(server=self._server, name=name, version=version, manifest=self._blobs.put(data))
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
