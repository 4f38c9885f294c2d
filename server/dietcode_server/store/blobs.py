"""Content by digest, in chunks, so that a range is read without the rest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from dietcode.errors import NotFoundError, RequestError
from dietcode.protocol import FileFacts
from dietcode.workload.text import clip
from dietcode_server.store.database import StoreError
from dietcode_server.store.locks import insert_new
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import Blob, BlobChunk

CHUNK_BYTES = 1 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def add(session: Session, data: bytes) -> str:
    """Keep `data` and return its digest, ``sha256:<hex>``; what is there already stays as it is."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if session.get(Blob, digest, with_for_update=True) is not None:  # see `retention`, which deletes blobs
        return digest
    if not insert_new(session, Blob, digest=digest, size_bytes=len(data), created_at=utc_now()):
        return digest
    for position, start in enumerate(range(0, len(data), CHUNK_BYTES)):
        chunk = {"digest": digest, "position": position, "data": data[start : start + CHUNK_BYTES]}
        session.execute(insert(BlobChunk), chunk)
    return digest


def facts(session: Session, digest: str) -> FileFacts:
    """Digest and size of a blob.

    Raises
    ------
    RequestError
        `digest` is not ``sha256:`` and 64 hex digits.
    NotFoundError
        There is no such blob.
    """
    if not _DIGEST.fullmatch(digest):
        raise RequestError(f"given {clip(digest)}; allowed: sha256:<64 hex digits>")
    blob = session.get(Blob, digest)
    if blob is None:
        raise NotFoundError(f"{digest}: no such blob; the manifest of a library lists those that it needs")
    return FileFacts(sha256=digest, size_bytes=blob.size_bytes)


def read(session: Session, digest: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the bytes [start, stop) of a blob, at most a chunk at a time.

    Parameters
    ----------
    digest : str
    start : int
    stop : int or None
        Beyond the end means the end, as None does.

    Raises
    ------
    RequestError, NotFoundError
        As for `facts`, before the first chunk; or `start` and `stop` are negative.
    StoreError
        A chunk is missing.
    """
    size = facts(session, digest).size_bytes
    end = size if stop is None else min(stop, size)
    if start < 0 or end < 0:
        raise RequestError(f"bytes {start} to {stop} of {digest}: allowed are 0 to {size}")
    return _chunks(session, digest, start, end)


def _chunks(session: Session, digest: str, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        position, offset = divmod(start, CHUNK_BYTES)
        of_chunk = (BlobChunk.digest == digest, BlobChunk.position == position)
        data = session.scalar(select(BlobChunk.data).where(*of_chunk))
        part = (data or b"")[offset : offset + end - start]
        if not part:
            raise StoreError(f"{digest}: byte {start} is missing from the database; restore it from a backup")
        yield part
        start += len(part)
