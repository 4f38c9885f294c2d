"""Lists of jobs and libraries, a page at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import event
from store_helpers import ALL, F, Q, R, S, job_in, submit

from dietcode.errors import DietCodeError, RequestError
from dietcode.protocol import JobState
from dietcode_server.api.work_figures import WorkFigures
from dietcode_server.store import jobs, leases, libraries
from dietcode_server.store.database import Database
from dietcode_server.store.tables import Base


def all_pages(database: Database, limit: int, between: Any = None, **filters: Any) -> list[str]:
    seen: list[str] = []
    cursor = None
    while True:
        with database.read() as session:
            rows, cursor = jobs.list_jobs(session, limit=limit, cursor=cursor, **filters)
        assert len(rows) == limit or cursor is None
        seen += [row.id for row in rows]
        assert len(seen) == len(set(seen))
        if cursor is None:
            return seen
        if between is not None:
            between()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12, 13, 500])
def test_pages_are_stable_while_jobs_are_added(database: Database, limit: int) -> None:
    """Several jobs have the same time, so that the id decides among them."""
    times = [datetime(2026, 1, 1, 0, 0, n // 3, tzinfo=UTC) for n in range(12)]
    random.Random(0).shuffle(times)
    with database.write() as session:
        rows = [submit(session, force=True, now=at)[0] for at in times]
    expected = [row.id for row in sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)]
    assert all_pages(database, limit) == expected
    assert all_pages(database, limit, lambda: job_in(database, Q)) == expected


def test_a_page_of_some_states_and_one_name(database: Database) -> None:
    made = {state: job_in(database, state) for state in ALL}
    with database.write() as session:
        other = submit(session, "other")[0].id
    assert all_pages(database, 50, states=[R]) == [made[R]]
    assert set(all_pages(database, 2, states=[Q, F, S])) == {made[Q], made[F], made[S], other}
    assert all_pages(database, 50, states=[Q], name="other") == [other]
    assert all_pages(database, 50, name="nothing") == []


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "AAAA", "ä", "\x00", "W10", "WyIyMDI2LTAxLTAxIiwgImEiXQ", "WzEsIDJd", "W" * 10_000, "bnVsbA"],
)
def test_a_cursor_that_no_page_gave(database: Database, cursor: str) -> None:
    for table in (jobs.list_jobs, libraries.list_libraries):
        with (
            pytest.raises(RequestError, match=r"cursor: given .*leave it out") as caught,
            database.read() as session,
        ):
            table(session, cursor=cursor)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_a_cursor_of_another_list(database: Database) -> None:
    job_in(database, Q)
    job_in(database, Q)
    with database.read() as session:
        _, cursor = jobs.list_jobs(session, limit=1)
        assert cursor is not None
        with pytest.raises(RequestError, match="cursor"):
            libraries.list_libraries(session, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 501, 1 << 70])
def test_a_limit_out_of_range(database: Database, limit: int) -> None:
    with (
        pytest.raises(DietCodeError, match=r"limit: given .*; allowed: 1 to 500"),
        database.read() as session,
    ):
        jobs.list_jobs(session, limit=limit)


def test_a_page_of_one_owner(database: Database) -> None:
    with database.write() as session:
        ids = {
            (owner, name): submit(session, name, owner=owner)[0].id
            for owner in ("alice", "bob")
            for name in (f"{owner}-one", f"{owner}-two")
        }
    assert set(all_pages(database, 1, owner="alice")) == {ids["alice", f"alice-{n}"] for n in ("one", "two")}
    assert all_pages(database, 50, owner="bob", name="bob-one") == [ids["bob", "bob-one"]]
    assert all_pages(database, 50, owner="bob", states=[F]) == []


FILTERS: list[dict[str, Any]] = [
    {},
    {"states": [Q]},
    {"states": [Q, F, S]},
    {"name": "dense"},
    {"owner": "local"},
    {"owner": "local", "name": "dense", "states": [S, F]},
]


@contextmanager
def plans_of(database: Database) -> Iterator[list[str]]:
    """What SQLite does for each statement meanwhile."""
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "DELETE", "UPDATE")):
            rows = connection.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            plans.append(f"{statement}: {'; '.join(row[3] for row in rows)}")

    event.listen(database.engine, "before_cursor_execute", explain)
    try:
        yield plans
    finally:
        event.remove(database.engine, "before_cursor_execute", explain)


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("filters", FILTERS)
def test_no_page_reads_or_sorts_a_whole_table(database: Database, filters: dict[str, Any]) -> None:
    with database.write() as session:
        for number in range(4):
            submit(session, force=True, now=datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC))
    with plans_of(database) as plans, database.read() as session:
        _, cursor = jobs.list_jobs(session, limit=2)
        jobs.list_jobs(session, limit=2, cursor=cursor, **filters)
        libraries.list_libraries(session, limit=2)
        libraries.list_libraries(session, limit=2, name="dense")
        WorkFigures(CollectorRegistry()).read(session)
        leases.has_overdue(session, datetime(2026, 1, 1, tzinfo=UTC))
    assert len(plans) > 5
    for plan in plans:
        assert "TEMP B-TREE" not in plan, plan
        scans = [step for step in plan.split("; ") if "SCAN" in step]
        assert all("USING" in step and "INDEX" in step for step in scans), plan
    assert any("jobs_by_deadline (state=? AND deadline_at<?)" in plan for plan in plans)


def test_figures_look_at_one_job_where_none_has_ended(database: Database) -> None:
    """PostgreSQL reads all of a table without statistics where a query may want thousands of its rows."""
    running = job_in(database, R)
    figures = WorkFigures(CollectorRegistry())
    asked: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))

    def of_ends() -> list[str]:
        asked.clear()
        with database.read() as session:
            figures.read(session)
        return [one for one in asked if "finished_at DESC" in one or "finished_at >=" in one]

    assert len(of_ends()) == 1, "none has ended"
    with database.write() as session:
        assert jobs.finish(session, running, JobState.FAILED, error="no")
    assert len(of_ends()) == 2 and figures.jobs.labels("failed")._value.get() == 1
    assert len(of_ends()) == 1, "and none since"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_is_deleted_is_found_by_indexes(database: Database) -> None:
    """Also where the database itself looks for what refers to a row; it shows none of those plans."""
    indexed = {
        (table.name, column.name)
        for table in Base.metadata.sorted_tables
        for index in [*table.indexes, table.primary_key, *table.constraints]
        for column in list(getattr(index, "columns", ()))[:1]
    }
    deleted = {"jobs", "workloads", "blobs", "events"}
    wanted = {
        (table.name, key.parent.name)
        for table in Base.metadata.sorted_tables
        for key in table.foreign_keys
        if key.column.table.name in deleted
    }
    assert len(wanted) > 5 and wanted <= indexed, wanted - indexed
