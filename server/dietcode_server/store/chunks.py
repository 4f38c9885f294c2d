"""Pieces of blobs in memory, so that many downloads of one library read the database once."""

from __future__ import annotations

import threading
from collections import OrderedDict

from dietcode_server.store import blobs
from dietcode_server.store.database import Database

MAX_BYTES = 48 << 20


class ChunkCache:
    """The chunks that were asked for last; thread-safe. Content by digest never changes, so none is stale.

    Parameters
    ----------
    max_bytes : int
        Most that it keeps.
    """

    def __init__(self, database: Database, max_bytes: int = MAX_BYTES) -> None:
        self._database, self._max_bytes = database, max_bytes
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def kept(self, digest: str, position: int) -> bytes | None:
        """A chunk, if it is in memory; waits for nothing."""
        with self._lock:
            data = self._kept.get((digest, position))
            if data is not None:
                self._kept.move_to_end((digest, position))
            return data

    def read(self, digest: str, position: int) -> bytes:
        """A whole chunk, from memory or the database; as `blobs.add` cut it.

        Raises
        ------
        NotFoundError
            There is no such blob.
        StoreError
            The database cannot be read, or the chunk is missing.
        """
        data = self.kept(digest, position)
        if data is None:
            start = position * blobs.CHUNK_BYTES
            with self._database.read() as session:
                data = b"".join(blobs.read(session, digest, start, start + blobs.CHUNK_BYTES))
            self._keep((digest, position), data)
        return data

    def _keep(self, key: tuple[str, int], data: bytes) -> None:
        with self._lock:
            self._num_bytes += len(data) - len(self._kept.pop(key, b""))
            self._kept[key] = data
            while self._num_bytes > self._max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._num_bytes -= len(oldest)
