"""The benchmarks of the service, much smaller: they run, and what they say of themselves holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_libraries import ROOT

from dietcode_server.store.database import Database


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.long
def test_load(tmp_path: Path) -> None:
    from benchmarks.service import load

    found = load.measure(
        tmp_path, num_pulls=4, library_bytes=3_000_000, submissions=10, questions=10, secs=1.5, tune=False
    )
    assert found["errors"] == 0, found
    assert found["pulls"]["all"]["count"] >= 4 and found["submissions"]["count"] >= 5
    assert set(found["statuses"]) <= {"200", "201"} and found["statuses"]["201"] >= 5
    assert 0 < found["metadata"]["p50_ms"] <= found["metadata"]["p99_ms"] <= found["metadata"]["max_ms"]
    assert 30 << 20 < found["server_rss_bytes"]["peak"] < 300 << 20


@pytest.mark.thorough
def test_filled(tmp_path: Path) -> None:
    from benchmarks.service import filled

    found = filled.measure(tmp_path, num_jobs=1200, num_records=3000, postgres_records=0, rounds=1)
    pages = found["sqlite"]["pages"]
    assert len(pages) > 15 and found["sqlite"]["num_records"] == 3000
    assert found["sqlite"]["slowest_ms"] == max(page["max_ms"] for page in pages.values())


def test_what_is_filled_in_is_what_a_server_writes(new_url, kind: str) -> None:
    """On both databases: each row is read back as the service reads it."""
    from benchmarks.service import fill
    from dietcode_server.store import jobs, libraries, wire
    from dietcode_server.store.records import SqlRecords

    database = Database(new_url(migrated=True) if kind != "sqlite" else new_url())
    database.upgrade()
    fill.fill(database, 400, 2000)
    with database.read() as session:
        rows, _ = jobs.list_jobs(session, limit=500)
        made = wire.jobs_to_wire(session, rows)
        versions, _ = libraries.list_libraries(session, name="name-7")
        assert [row.version for row in versions] == [2, 1]
        assert wire.libraries_to_wire(session, versions)[0].owner == "owner-7"
        assert libraries.latest(session, "name-7") == (2, 400)
        one = wire.to_wire(session, jobs.get(session, fill.job_id(7)))
    assert len(made) == 400 and sum(job.library is not None for job in made) == 280
    assert one.spec is not None and one.spec["name"] == "bert-dense" and one.progress is not None
    device = {"id": "cpu0", "name": "A CPU of the benchmark", "target": {}}
    records = SqlRecords(database, one.workload, device, spec={}).records
    assert len(records.measurements) > 0
    database.dispose()
