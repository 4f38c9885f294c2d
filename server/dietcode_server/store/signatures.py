"""Signatures of published libraries, made when they are first asked for, by the process that serves them.

Workers, which build what strangers submit, never handle the key.
"""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError

from dietcode.errors import LibraryError
from dietcode.protocol import FileFacts
from dietcode.trust.envelope import parse_envelope
from dietcode.trust.pins import now_text
from dietcode.trust.statements import (
    LatestStatement,
    LibraryStatement,
    ManifestFacts,
    read_unverified,
    sign_latest,
    sign_library,
)
from dietcode_server.store import blobs, libraries
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import LibraryRow, SignatureRow


def signature(database: Database, ring: KeyRing, name: str, version: int | None = None) -> tuple[bytes, int]:
    """Return the envelope of one version, signed by the current key, and the version.

    Each key signs a version once; after a rotation, or when a key was revoked, the next request signs anew.

    Parameters
    ----------
    ring : KeyRing
    name : str
    version : int or None
        By default the newest.

    Raises
    ------
    NotFoundError
        There is no such version.
    DietCodeError
        The key cannot be read.
    StoreError
        The database cannot be written.
    """
    key, revoked = ring.signing_key(), ring.revoked()
    keyid = key.public.fingerprint
    with database.read() as session:
        row = libraries.get(session, name, version)
        kept = session.get(SignatureRow, (row.id, keyid))
        if kept is not None and _is_current(kept, revoked):
            return kept.envelope.encode(), row.version
        manifest = blobs.facts(session, row.manifest_digest)
    made = sign_library(key, _statement(row, manifest, revoked)).to_bytes()
    try:
        with database.write() as session:
            session.merge(
                SignatureRow(library_id=row.id, keyid=keyid, envelope=made.decode(), created_at=utc_now())
            )
    except IntegrityError:  # another request was faster; what it signed says the same
        pass
    return made, row.version


def latest(database: Database, ring: KeyRing, name: str, lasts_secs: float) -> bytes:
    """The envelope that says which version of a name is the latest, signed when it is asked for.

    Parameters
    ----------
    ring : KeyRing
    name : str
    lasts_secs : float
        For so long it may be shown.

    Raises
    ------
    NotFoundError
        There is no such name, or all its versions are yanked.
    DietCodeError
        The key cannot be read.
    """
    with database.read() as session:
        version, sequence = libraries.latest(session, name)
    statement = LatestStatement(
        type="dietcode-latest/2",
        name=name,
        version=version,
        sequence=sequence,
        issued_at=now_text(),
        expires_at=now_text(lasts_secs),
    )
    return sign_latest(ring.signing_key(), statement).to_bytes()


def _statement(row: LibraryRow, manifest: FileFacts, revoked: list[str]) -> LibraryStatement:
    return LibraryStatement(
        name=row.name,
        version=row.version,
        manifest=ManifestFacts(sha256=manifest.sha256, bytes=manifest.size_bytes),
        issued_at=now_text(),
        revoked=revoked,
    )


def _is_current(kept: SignatureRow, revoked: list[str]) -> bool:
    """Return whether a kept signature is readable, and tells of the keys that are revoked now."""
    try:
        return read_unverified(parse_envelope(kept.envelope.encode(), "a kept signature")).revoked == revoked
    except LibraryError:
        return False
