"""`benchmarks.claims`: it measures what it says."""

from __future__ import annotations

import pytest
from postgres_server import Postgres
from sqlalchemy import func, select

from benchmarks.claims import start_reserved, start_running, storm, submit
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow


@pytest.mark.long
def test_every_job_is_claimed_once(postgres: Postgres) -> None:
    url = postgres.create(migrated=True)
    database = Database(url)
    assert submit(database, 9)["count"] == 9
    found = storm("reserve", url, 4, 60.0)
    assert (found["count"], found["lost"], found["clients"]) == (9, 0, 4)
    with database.read() as session:
        assert all(name is not None for name in session.scalars(select(JobRow.runner)))
    found = storm("claim", url, 4, 60.0, start_reserved(database, 4))
    assert (found["count"], found["lost"]) == (9, 0)
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert 0 < found["database_ms"] < 1000
    with database.read() as session:
        assert session.scalars(select(JobRow.attempt)).all() == [1] * 9
        holders = session.scalar(select(func.count(JobRow.runner.distinct())))
    assert holders == 4
    running = start_running(database, 3)
    assert len(set(running)) == 3
    database.dispose()
    postgres.drop(url)
