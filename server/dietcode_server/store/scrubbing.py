"""Whether what is stored is what was published: every blob is read and hashed again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode_server.store.database import Database
from dietcode_server.store.tables import Blob, BlobChunk, LibraryFile, LibraryRow


@dataclass(frozen=True)
class DamagedBlob:
    """A blob that is not what its digest says, or is not there.

    Attributes
    ----------
    used_by : tuple of str
        Files of libraries that it is, as ``name@version/path``.
    """

    digest: str
    reason: str
    used_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.digest}: {self.reason}; {', '.join(self.used_by) or 'no library'} has it"


def scrub(database: Database) -> Iterator[DamagedBlob | str]:
    """Yield the digest of each blob that is right, and what is wrong of each other one, one at a time.

    Servers go on meanwhile; each blob is read in a transaction of its own.

    Raises
    ------
    StoreError
        The database cannot be read.
    """
    with database.read() as session:
        digests = set(session.scalars(select(Blob.digest)))
        listed = set(session.scalars(select(LibraryFile.digest).distinct()))
        listed |= set(session.scalars(select(LibraryRow.manifest_digest).distinct()))
    for digest in sorted(digests | listed):
        with database.read() as session:
            reason = _what_is_wrong(session, digest)
            yield digest if reason is None else DamagedBlob(digest, reason, _used_by(session, digest))


def _what_is_wrong(session: Session, digest: str) -> str | None:
    blob = session.get(Blob, digest)
    if blob is None:
        return None if not _used_by(session, digest) else "its bytes are missing"  # deleted meanwhile
    found, size = hashlib.sha256(), 0
    positions = select(BlobChunk.position).where(BlobChunk.digest == digest).order_by(BlobChunk.position)
    for position in session.scalars(positions).all():
        key = (BlobChunk.digest == digest, BlobChunk.position == position)
        data = session.scalar(select(BlobChunk.data).where(*key)) or b""
        found.update(data)
        size += len(data)
    if size != blob.size_bytes:
        return f"{size} bytes of {blob.size_bytes} are there"
    return None if f"sha256:{found.hexdigest()}" == digest else f"its bytes are sha256:{found.hexdigest()}"


def _used_by(session: Session, digest: str) -> tuple[str, ...]:
    query = (
        select(LibraryRow.name, LibraryRow.version, LibraryFile.path)
        .join(LibraryFile, LibraryFile.library_id == LibraryRow.id)
        .where(LibraryFile.digest == digest)
        .order_by(LibraryRow.name, LibraryRow.version, LibraryFile.path)
        .limit(20)
    )
    return tuple(f"{name}@{version}/{path}" for name, version, path in session.execute(query))
