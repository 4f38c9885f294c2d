"""Files that nothing in the database is about any more."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from small_libraries import spec_data

from dietcode.workload.parse import spec_from_data
from dietcode_server.engine.housekeeping import Housekeeper
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.retention import Policy
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import JobRow


@pytest.fixture
def database(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    database.upgrade()
    yield database
    database.dispose()


def old_job(database: Database) -> JobRow:
    """A job that was cancelled two days ago."""
    then = utc_now() - timedelta(days=2)
    with database.write() as session:
        row, _ = jobs.submit(
            session,
            spec=spec_from_data(spec_data("old")),
            target={},
            device=None,
            runnable=True,
            force=False,
            idempotency_key=None,
            now=then,
        )
        return jobs.request_cancel(session, row.id, now=then)


def housekeeper(database: Database, folder: Path, policy: Policy) -> Housekeeper:
    return Housekeeper(database, policy, folder / "work", folder / "logs", every_secs=3600)


def test_logs_and_work_files_go_with_their_jobs_and_workloads(database: Database, tmp_path: Path) -> None:
    job = old_job(database)
    log = tmp_path / "logs" / f"{job.id}.log"
    work = tmp_path / "work" / "cpu0" / job.workload.removeprefix("sha256:")[:24]
    forced = work.with_name(f"{work.name}.{job.id}")
    log.parent.mkdir()
    log.write_text("said")
    for folder in (work, forced):
        folder.mkdir(parents=True)
        (folder / "database.json").write_text("{}")
    assert not housekeeper(database, tmp_path, Policy(3, 3)).tidy()
    assert log.exists() and work.exists() and forced.exists()
    swept = housekeeper(database, tmp_path, Policy(1, 1)).tidy()
    assert (swept.jobs, swept.workloads) == (1, 1)
    assert not log.exists() and not work.exists() and not forced.exists()


def test_its_thread_says_what_went_and_stops(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_job(database)
    keeper = housekeeper(database, tmp_path, Policy(1, 1))
    with caplog.at_level(logging.INFO, logger="dietcode.housekeeping"):
        keeper.start()
        keeper._thread.join(0.1)
        for _ in range(100):
            if caplog.records:
                break
            keeper._thread.join(0.1)
    keeper.stop()
    keeper._thread.join(60)
    assert not keeper._thread.is_alive()
    assert [record.getMessage() for record in caplog.records] == [
        "deleted 1 job, 0 records, 1 workload, 0 blobs"
    ]
