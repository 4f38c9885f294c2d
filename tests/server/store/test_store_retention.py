"""What a sweep deletes, and what it never does."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from small_libraries import as_served
from small_models import model_data
from sqlalchemy import func, select
from store_helpers import ALL, C, F, R, S, job_in, library_files, submit

from dietcode.errors import NotFoundError
from dietcode.graph.model_request import model_from_data
from dietcode.protocol import FINAL_STATES
from dietcode_server.store import blobs, jobs, libraries, shares
from dietcode_server.store.database import Database
from dietcode_server.store.retention import Policy, Swept, forget_records, sweep
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import Blob, BlobChunk, EventRow, JobRow, TuningRecord, Workload

SOON = timedelta(days=1)
LATER = timedelta(days=40)
POLICY = Policy(jobs_days=30, records_days=30)


def count(database: Database, table: type) -> int:
    with database.read() as session:
        return int(session.scalar(select(func.count()).select_from(table)) or 0)


def add_record(database: Database, job_id: str) -> None:
    with database.write() as session:
        row = jobs.get(session, job_id)
        session.add(
            TuningRecord(
                workload=row.workload,
                device_id=row.device_id,
                job_id=job_id,
                kind="micro_kernel",
                line={"kind": "micro_kernel"},
                created_at=utc_now(),
            )
        )


def test_by_default_jobs_and_records_are_kept_for_ever(database: Database) -> None:
    for state in ALL:
        add_record(database, job_in(database, state))
    assert sweep(database, Policy(), utc_now() + 1000 * LATER) == Swept()
    assert not Swept()
    assert count(database, JobRow) == count(database, TuningRecord) == len(ALL)


def test_jobs_that_ended_long_ago_and_made_no_library_go_with_their_events(database: Database) -> None:
    ids = {state: job_in(database, state) for state in ALL}
    assert sweep(database, POLICY, utc_now() + SOON).jobs == 0
    swept = sweep(database, POLICY, utc_now() + LATER)
    assert swept.jobs == len(FINAL_STATES)
    with database.read() as session:
        assert set(session.scalars(select(JobRow.id))) == {
            ids[state] for state in ALL if state not in FINAL_STATES
        }
        assert set(session.scalars(select(EventRow.job_id))) <= set(session.scalars(select(JobRow.id)))


def test_of_jobs_that_ended_the_last_are_kept(database: Database) -> None:
    ids = [job_in(database, state) for state in (C, F, C, F)]
    waits = job_in(database, R)
    assert sweep(database, Policy(jobs_at_most=4)).jobs == 0
    assert sweep(database, Policy(jobs_at_most=2)).jobs == 2
    with database.read() as session:
        assert set(session.scalars(select(JobRow.id))) == {*ids[2:], waits}


def test_what_specs_take_is_counted_until_they_are_deleted(database: Database) -> None:
    def kept() -> tuple[int, int]:
        with database.read() as session:
            return shares.bytes_of(session, "local"), shares.bytes_of(session, "bob")

    assert kept() == (0, 0)
    job_in(database, C)
    (one, none) = kept()
    assert one > 100 and none == 0
    job_in(database, C)
    with database.write() as session:
        submit(session, owner="bob", force=True)
    assert kept() == (2 * one, one)
    graph = model_from_data(json.loads(json.dumps(model_data())))
    with database.write() as session:
        row, _ = submit(session, spec=graph)
        jobs.request_cancel(session, row.id)
    assert kept()[0] > 2 * one + len(json.dumps(graph.content.to_json()))
    sweep(database, Policy(jobs_days=POLICY.jobs_days), utc_now() + LATER)
    assert kept() == (0, one)
    assert count(database, Workload) == 1, "the graph, which no job is about any more, is gone"


def test_measurements_of_a_workload_are_deleted_when_asked(database: Database) -> None:
    job_id = job_in(database, F)
    add_record(database, job_id)
    add_record(database, job_id)
    with database.read() as session:
        workload, device = jobs.get(session, job_id).workload, jobs.get(session, job_id).device_id
    with pytest.raises(NotFoundError, match=rf"workload 'nonsense': no measurements of it.*{workload} \("):
        forget_records(database, "nonsense")
    with pytest.raises(NotFoundError, match=f"device 'another': no measurements.*there are of {device}"):
        forget_records(database, workload, "another")
    assert count(database, TuningRecord) == 2
    assert forget_records(database, workload, device) == 2
    assert count(database, TuningRecord) == 0
    with pytest.raises(NotFoundError, match="there are none at all"):
        forget_records(database, workload)


def test_a_job_that_published_stays_with_its_library(database: Database) -> None:
    files = as_served(library_files())
    job_id = job_in(database, R)
    with database.write() as session:
        row = libraries.publish(session, job=jobs.get(session, job_id), device_name="x", files=files)
        jobs.finish(session, job_id, S, library_id=row.id)
    assert sweep(database, POLICY, utc_now() + LATER).jobs == 0
    with database.read() as session:
        assert libraries.manifest_bytes(session, libraries.get(session, row.name)) == files["manifest.json"]
        for digest in session.scalars(select(Blob.digest)):
            assert b"".join(blobs.read(session, digest))


def test_records_stay_while_a_job_is_about_their_workload_and_go_after_it(database: Database) -> None:
    running, failed = job_in(database, R), job_in(database, F)
    for job_id in (running, failed):
        add_record(database, job_id)
    assert sweep(database, POLICY, utc_now() + LATER).records == 0
    with database.read() as session:
        kept = [row.job_id for row in session.scalars(select(TuningRecord).order_by(TuningRecord.id))]
    assert kept == [running, None], "a record outlives the job that measured it"
    with database.write() as session:
        jobs.finish(session, running, C)
    swept = sweep(database, POLICY, utc_now() + LATER)
    assert (swept.jobs, swept.records, swept.workloads) == (1, 2, 1)
    assert count(database, TuningRecord) == count(database, Workload) == 0


def test_records_of_a_workload_measured_lately_stay(database: Database) -> None:
    add_record(database, job_in(database, F))
    policy = Policy(jobs_days=1, records_days=30)
    swept = sweep(database, policy, utc_now() + timedelta(days=10))
    assert (swept.jobs, swept.records) == (1, 0)
    assert sweep(database, policy, utc_now() + LATER).records == 1


def test_content_that_no_library_lists_goes_after_an_hour(database: Database) -> None:
    with database.write() as session:
        digest = blobs.add(session, b"x" * (blobs.CHUNK_BYTES + 1))
    assert sweep(database, Policy(), utc_now()).blobs == 0, "its library may be on the way"
    assert sweep(database, Policy(), utc_now() + timedelta(hours=2)).blobs == 1
    assert count(database, Blob) == count(database, BlobChunk) == 0
    with database.write() as session:
        assert blobs.add(session, b"x" * (blobs.CHUNK_BYTES + 1)) == digest


def test_more_than_a_batch_goes_in_one_sweep(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietcode_server.store.retention._BATCH", 2)
    for _ in range(5):
        job_in(database, F)
    assert sweep(database, POLICY, utc_now() + LATER).jobs == 5
