"""A database of every past revision is upgraded, and its rows are still read."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import func, select
from store_helpers import R, S, submit
from store_records import DEVICE, micro_kernel
from store_rows import REVISIONS, STATES, facts, load

from dietcode_server.store import jobs, leases
from dietcode_server.store.backup import copy_rows, count_on, reflected
from dietcode_server.store.database import Database, migrations_config
from dietcode_server.store.records import SqlRecords
from dietcode_server.store.tables import Base

OLD = sorted(path.stem for path in REVISIONS.glob("*.sql"))


def test_every_past_revision_is_there() -> None:
    """`store_rows.py` writes the one that is missing."""
    script = ScriptDirectory.from_config(migrations_config())
    past = {revision.revision for revision in script.walk_revisions()} - {script.get_current_head()}
    assert past <= set(OLD)


def at_revision(revision: str, kind: str, url: str, tmp_path: Path) -> Database:
    """A database as that revision left it."""
    place = tmp_path / ("dietcode.db" if kind == "sqlite" else "source.db")
    load(REVISIONS / f"{revision}.sql", place)
    database = Database(url)
    if kind != "sqlite":
        source = Database(f"sqlite:///{place}")
        database.upgrade(revision)
        with source.snapshot() as given, database.begin() as made:
            copy_rows(given, made, reflected(given))
            count_on(made)
        source.dispose()
    return database


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("revision", OLD)
def test_its_rows_are_still_read(revision: str, kind: str, url: str, tmp_path: Path) -> None:
    database = at_revision(revision, kind, url, tmp_path)
    assert database.revision() == revision
    database.upgrade()
    assert database.at_head()
    found = facts(database)
    assert {job.state for job in found["jobs"].values()} == {*STATES, S} and len(found["jobs"]) == 7
    made = found["jobs"]["made"]
    assert made.library.version == 2 and made.measured == 2 and made.measure and made.priority == 0
    assert [library.version for library in found["libraries"]] == [1, 2]
    assert b'"dietcode-library/1"' in found["manifest"] and found["dispatch"] == 16
    assert [line.get("kind") for line in found["records"]].count("micro_kernel") == 2
    assert [event.id for event in found["events"]["made"]] == [1, 2, 3]
    check_it_goes_on(database, found["jobs"]["running"].id)
    database.dispose()


def check_it_goes_on(database: Database, running: str) -> None:
    """The job that ran is found lost; new rows get numbers of their own."""
    with database.write() as session:
        row = jobs.get(session, running)
        assert row.state == R and leases.is_expired(row, leases.clock(session))
        assert leases.lost(session, running, str(row.runner), "its worker died")
        submit(session, "new")
    with database.read() as session:
        before = session.execute(select(func.max(Base.metadata.tables["tuning_records"].c.id))).scalar_one()
    store = SqlRecords(database, "sha256:" + "01" * 32, DEVICE, spec={})
    store.append(micro_kernel(1))
    with database.read() as session:
        assert (
            before
            < session.execute(select(func.max(Base.metadata.tables["tuning_records"].c.id))).scalar_one()
        )
