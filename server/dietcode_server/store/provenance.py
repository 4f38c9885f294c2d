"""Where a library comes from, as an in-toto statement: spec, records, versions of what built it, builder.

https://in-toto.io/Statement/v1 with the predicate https://slsa.dev/provenance/v1. It says what the server's
database holds; nothing of it is claimed by a build.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import rfc8785
from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.trust.envelope import Envelope, seal
from dietcode.trust.keys import SigningKey
from dietcode.workload.identity import canonical_bytes
from dietcode_server.store import libraries
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing
from dietcode_server.store.tables import JobRow, LibraryFile, LibraryRow, TuningRecord

PROVENANCE_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_BUILD = "urn:dietcode:build/1"


def note_records(session: Session, library: LibraryRow, device_id: str | None) -> None:
    """Note, once, the digest of all that is on record by now of a library's workload on its device."""
    if library.records_digest is not None or device_id is None:
        return
    found, number = hashlib.sha256(), 0
    lines = select(TuningRecord.line).where(
        TuningRecord.workload == library.workload, TuningRecord.device_id == device_id
    )
    for line in session.scalars(lines.order_by(TuningRecord.id).execution_options(yield_per=500)):
        found.update(json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n")
        number += 1
    library.records_digest, library.num_records = f"sha256:{found.hexdigest()}", number
    session.flush()


def provenance(database: Database, ring: KeyRing, name: str, version: int | None) -> tuple[bytes, int]:
    """Return the envelope of a version's statement, signed when it is asked for, and the version.

    Raises
    ------
    NotFoundError
        There is no such version.
    DietCodeError
        The key cannot be read.
    """
    with database.read() as session:
        row = libraries.get(session, name, version)
        manifest = json.loads(libraries.manifest_bytes(session, row))
        key = ring.signing_key()
        made = _sealed(key, _statement(session, row, manifest, key.public.fingerprint))
        return made.to_bytes(), row.version


def _sealed(key: SigningKey, statement: Mapping[str, Any]) -> Envelope:
    return seal(key, PROVENANCE_PAYLOAD, bytes(rfc8785.dumps(statement)))


def _statement(
    session: Session, row: LibraryRow, manifest: Mapping[str, Any], fingerprint: str
) -> dict[str, Any]:
    files = session.execute(
        select(LibraryFile.path, LibraryFile.digest)
        .where(LibraryFile.library_id == row.id)
        .order_by(LibraryFile.path)
    ).all()
    job = None if row.job_id is None else session.get(JobRow, row.job_id)
    used = [_resource(f"urn:dietcode:workload:{row.workload}", row.workload)]
    if row.records_digest is not None:
        resource = _resource(f"urn:dietcode:records:{row.workload}", row.records_digest)
        used.append(resource | {"annotations": {"lines": row.num_records, "device": row.device}})
    asked: dict[str, Any] = {"name": row.name, "target": row.target}
    times: dict[str, Any] = {"finishedOn": row.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    if job is not None:
        asked |= {"owner": job.owner, "force": job.force, "measure": job.measure}
        asked["spec"] = f"sha256:{hashlib.sha256(canonical_bytes(job.spec)).hexdigest()}"
        times["invocationId"] = f"urn:dietcode:job:{job.id}"
        if job.started_at is not None:
            times["startedOn"] = job.started_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "_type": _STATEMENT,
        "subject": [
            {"name": f"{row.name}@{row.version}/{path}", "digest": _digest(digest)} for path, digest in files
        ],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD,
                "externalParameters": asked,
                "resolvedDependencies": used,
            },
            "runDetails": {
                "builder": {
                    "id": f"urn:dietcode:server:{fingerprint}",
                    "version": {name: str(value) for name, value in manifest.get("versions", {}).items()},
                },
                "metadata": times,
            },
        },
    }


def _resource(uri: str, digest: str) -> dict[str, Any]:
    return {"uri": uri, "digest": _digest(digest)}


def _digest(digest: str) -> dict[str, str]:
    return {"sha256": digest.removeprefix("sha256:")}
