"""What is stored is hashed again, and what was damaged is named; a library says where it comes from."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from small_libraries import as_served
from sqlalchemy import delete, update
from store_helpers import R, S, job_in, library_files
from store_records import CALIBRATION, DEVICE, micro_kernel

from dietcode.trust.envelope import parse_envelope
from dietcode_server.store import blobs, jobs, libraries
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing
from dietcode_server.store.provenance import PROVENANCE_PAYLOAD, note_records, provenance
from dietcode_server.store.records import SqlRecords
from dietcode_server.store.scrubbing import DamagedBlob, scrub
from dietcode_server.store.tables import BlobChunk, LibraryRow


def publish(database: Database) -> tuple[LibraryRow, dict[str, bytes]]:
    files = as_served(library_files())
    job_id = job_in(database, R)
    with database.write() as session:
        row = libraries.publish(session, job=jobs.get(session, job_id), device_name="x", files=files)
        jobs.finish(session, job_id, S, library_id=row.id)
        session.expunge_all()
    return row, files


def test_each_damaged_blob_is_named_with_who_has_it(database: Database) -> None:
    _, files = publish(database)
    with database.write() as session:
        other = blobs.add(session, b"of nobody")
    found = list(scrub(database))
    digests = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in files.items()}
    assert found == sorted({*digests.values(), other})
    flipped, short, gone = digests["library.so"], digests["report.json"], digests["dispatch.json"]
    of = BlobChunk.digest
    with database.write() as session:
        session.execute(update(BlobChunk).where(of == flipped).values(data=b"Code"))
        session.execute(update(BlobChunk).where(of == short).values(data=b"{}"))
        session.execute(delete(BlobChunk).where(of == gone))
    damaged = {one.digest: one for one in scrub(database) if isinstance(one, DamagedBlob)}
    assert set(damaged) == {flipped, short, gone}
    assert damaged[flipped].used_by == ("dense@1/library.so",)
    assert damaged[flipped].reason == f"its bytes are sha256:{hashlib.sha256(b'Code').hexdigest()}"
    assert damaged[short].reason == f"2 bytes of {len(files['report.json'])} are there"
    assert damaged[gone].reason == f"0 bytes of {len(files['dispatch.json'])} are there"


def statement(database: Database, ring: KeyRing) -> dict[str, Any]:
    envelope, version = provenance(database, ring, "dense", None)
    assert version == 1
    key = ring.signing_key().public
    payload = parse_envelope(envelope, "provenance").payload_of(key, PROVENANCE_PAYLOAD, "provenance")
    found: dict[str, Any] = json.loads(payload)
    return found


def test_a_library_says_where_it_comes_from(database: Database, tmp_path: Any) -> None:
    row, files = publish(database)
    ring = KeyRing(tmp_path / "keys")
    found = statement(database, ring)
    assert (found["_type"], found["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    assert {one["name"]: one["digest"]["sha256"] for one in found["subject"]} == {
        f"dense@1/{name}": hashlib.sha256(data).hexdigest() for name, data in files.items()
    }
    made = found["predicate"]["buildDefinition"]
    assert [one["digest"]["sha256"] for one in made["resolvedDependencies"]] == [row.workload[7:]]
    assert made["externalParameters"]["owner"] == "local" and len(made["externalParameters"]["spec"]) == 71
    run = found["predicate"]["runDetails"]
    assert run["builder"]["id"] == f"urn:dietcode:server:{ring.signing_key().public.fingerprint}"
    assert run["metadata"]["invocationId"] == f"urn:dietcode:job:{row.job_id}"


def test_the_records_that_were_there_are_named_by_a_digest_once(database: Database, tmp_path: Any) -> None:
    row, _ = publish(database)
    store = SqlRecords(database, row.workload, DEVICE, spec={})
    for line in (CALIBRATION, micro_kernel(4)):
        store.append(line)
    noted = []
    for _ in range(2):
        with database.write() as session:
            library = libraries.get(session, "dense", 1)
            note_records(session, library, DEVICE["id"])
            noted.append((library.records_digest, library.num_records))
        store.append(micro_kernel(6))
    assert noted[0] == noted[1] and noted[0][1] == 2
    predicate = statement(database, KeyRing(tmp_path / "keys"))["predicate"]
    used = predicate["buildDefinition"]["resolvedDependencies"]
    assert used[1]["digest"]["sha256"] == str(noted[0][0])[7:] and used[1]["annotations"]["lines"] == 2
