"""Tuning records in SQL: what was appended is there again, whatever happened to the process."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from store_helpers import job_in, start
from store_records import CALIBRATION, DEVICE, FIXED_BYTES, SEED, micro_kernel

from dietcode.errors import RecordsError
from dietcode.measure.calibration import reference_problem
from dietcode.measure.records import RecordsStore
from dietcode.protocol import JobState
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.records import SqlRecords, records_of_others
from dietcode_server.store.tables import TuningRecord

WORKLOAD = "sha256:" + "01" * 32


def opened(database: Database, workload: str = WORKLOAD, **options: Any) -> SqlRecords:
    return SqlRecords(database, workload, DEVICE, spec={"name": "dense"}, **options)


def count(database: Database) -> int:
    with database.read() as session:
        return session.execute(select(func.count()).select_from(TuningRecord)).scalar_one()


def spoil(database: Database, line: str) -> None:
    """Put something else in the place of the second row."""
    with database.write() as session:
        session.execute(update(TuningRecord).where(TuningRecord.id == 2).values(line=json.loads(line)))


def test_what_was_appended_is_loaded_again(database: Database) -> None:
    store: RecordsStore = opened(database)
    lines = [
        CALIBRATION,
        SEED,
        FIXED_BYTES,
        micro_kernel(4),
        micro_kernel(6, points=[], secs=[], error="it gave wrong numbers"),
        micro_kernel(4, secs=[2e-6], num_readings=9),  # read again: takes the place of the earlier
    ]
    for line in lines:
        store.append(line)
    assert len(store.records.measurements) == 2
    again = opened(database).records
    assert again == store.records
    assert list(again.lines()) == list(store.records.lines())
    assert json.dumps(list(again.lines())) == json.dumps(list(store.records.lines()))
    assert count(database) == len(lines)


def test_the_columns_repeat_what_people_ask_for(database: Database) -> None:
    job_id = job_in(database, JobState.RUNNING)
    store = opened(database, job_id=job_id, attempt=2)
    assert not store.has_lines_of(job_id)
    store.append(SEED)
    store.append(micro_kernel(6, 32, points=[], secs=[], error="too slow"))
    store.append(micro_kernel(6, 32, tails="partition"))
    assert store.has_lines_of(job_id) and not store.has_lines_of("0" * 16)
    assert not opened(database, "sha256:" + "02" * 32).has_lines_of(job_id)
    with database.read() as session:
        rows = session.execute(
            text(
                "SELECT kind, micro_kernel, num_readings, error, job_id, attempt "
                "FROM tuning_records ORDER BY id"
            )
        ).all()
    assert [tuple(row) for row in rows] == [
        ("seed", None, None, None, job_id, 2),
        ("micro_kernel", "6x32", 1, "too slow", job_id, 2),
        ("micro_kernel", "6x32-partition", 1, None, job_id, 2),
    ]


def test_a_job_counts_what_it_measured(database: Database) -> None:
    job_id = job_in(database, JobState.RUNNING)
    store = opened(database, job_id=job_id)
    for line in (SEED, micro_kernel(1), micro_kernel(2), micro_kernel(1, num_readings=5)):  # read again
        store.append(line)
    with database.read() as session:
        assert jobs.get(session, job_id).measured == 2


def test_other_workloads_and_devices_are_left_alone(database: Database) -> None:
    other_device = DEVICE | {"id": "cpu1"}
    mine, other = opened(database), opened(database, "sha256:" + "02" * 32)
    elsewhere = SqlRecords(database, WORKLOAD, other_device, spec={})
    for rows, store in enumerate((mine, other, elsewhere), 1):
        store.append(micro_kernel(rows))
    assert opened(database).records == mine.records
    mine.clear()
    assert not mine.records.measurements and mine.records == opened(database).records
    assert len(opened(database, "sha256:" + "02" * 32).records.measurements) == 1
    assert len(SqlRecords(database, WORKLOAD, other_device, spec={}).records.measurements) == 1
    mine.append(micro_kernel(9))
    assert opened(database).records == mine.records


def test_jobs_on_the_same_workload_share_records(database: Database) -> None:
    first, second = opened(database), opened(database)
    first.append(micro_kernel(1))
    second.append(micro_kernel(2))
    assert [kernel.rows for kernel in opened(database).records.measurements] == [1, 2]


def test_a_header_is_skipped(database: Database) -> None:
    store = opened(database)
    store.append(store.records.header())
    assert count(database) == 0 and store.records == opened(database).records


@pytest.mark.parametrize(
    "line",
    [
        {},
        CALIBRATION | {"kappa": 2},
        {"kind": "seed"},
        micro_kernel(0),
        micro_kernel(4, secs=[]),
        micro_kernel(4, secs=[float("nan")]),
        micro_kernel(4, drift=float("inf")),
        micro_kernel(4, provenance={1, 2}),
        micro_kernel(4, points=[{"x": 1}]),
        {"kind": "micro_kernel"},
    ],
)
def test_a_line_that_is_no_record(database: Database, line: dict[str, Any]) -> None:
    store = opened(database)
    store.append({"kind": "problem", **reference_problem().to_json()})
    store.append(micro_kernel(1))
    with pytest.raises(RecordsError, match="is no tuning record: ") as caught:
        store.append(line)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    assert count(database) == 2 and store.records == opened(database).records


@pytest.mark.parametrize("line", ['{"kind": "micro_kernel"}', "[]", "3", '{"kind": "seed", "tile": [1]}'])
def test_a_bad_row_is_named(database: Database, line: str) -> None:
    store = opened(database)
    for rows in (1, 2, 3):
        store.append(micro_kernel(rows))
    spoil(database, line)
    with pytest.raises(RecordsError, match="row 2 of tuning_records is no tuning record: ") as caught:
        opened(database)
    assert "\n" not in str(caught.value)


def test_of_others_bad_rows_count_for_nothing(database: Database) -> None:
    other = opened(database, "sha256:" + "02" * 32)
    for rows in (1, 2, 3):
        other.append(micro_kernel(rows))
    opened(database).append(micro_kernel(9))
    spoil(database, '{"kind": "micro_kernel", "secs": [-1]}')
    (found,) = records_of_others(database, WORKLOAD, DEVICE)
    assert [kernel.rows for kernel in found.measurements] == [1, 3]
    (found,) = records_of_others(database, WORKLOAD, DEVICE, max_lines=1)
    assert [kernel.rows for kernel in found.measurements] == [3]


def test_a_database_that_cannot_be_written(database: Database) -> None:
    store = opened(database)
    store.append(micro_kernel(1))
    known = opened(database).records
    with database.begin() as connection:
        connection.execute(text("ALTER TABLE tuning_records RENAME TO elsewhere"))
    for call in (lambda: store.append(micro_kernel(2)), store.clear, lambda: opened(database)):
        with pytest.raises(
            RecordsError, match=r'no such table: tuning_records|relation "tuning_records"'
        ) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert store.records == known


def test_a_killed_process_keeps_what_it_appended(database: Database, url: str) -> None:
    process = start("append", url, WORKLOAD)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    told = [int(line) for line in process.stdout.read().split()]  # what is left: some may be read ahead
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    records = opened(database).records
    stored = [kernel.rows for kernel in records.measurements]
    # whole, in order, and at most one more than was told
    assert stored == list(range(1, len(stored) + 1))
    last = told[-1] if told else 20
    assert last <= len(stored) <= last + 1
    assert [m.to_json() for m in records.measurements.values()] == [micro_kernel(rows) for rows in stored]
