"""Lists of jobs for a page: filters, orders, both directions, and counts."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session
from store_helpers import ALL, C, F, I, Q, R, S, W, job_in, submit
from test_store_pages import plans_of

from dietcode.errors import RequestError
from dietcode.protocol import FINAL_STATES, JobState
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

AT = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["bert-dense", "bert-bmm", "conv_3x3", "conv-3x3", "dense"]
ORDERS = {
    "newest": lambda row: (row.created_at, row.id),
    "oldest": lambda row: (row.created_at, row.id),
    "finished": lambda row: (row.finished_at, row.id),
}


@pytest.fixture
def many(database: Database) -> list[JobRow]:
    """Sixty jobs of five names and three owners in all states; some have the same times."""
    rng = random.Random(1)
    with database.write() as session:
        for number in range(60):
            row, _ = submit(
                session,
                rng.choice(NAMES),
                force=True,
                owner=rng.choice(["alice", "bob", "carol"]),
                now=AT + timedelta(seconds=number // 3),
            )
            row.state = rng.choice(ALL).value
            if JobState(row.state) in FINAL_STATES:
                row.finished_at = AT + timedelta(seconds=100 - rng.randrange(12))
    with database.read() as session:
        rows = list(session.query(JobRow))
        session.expunge_all()
    return rows


def expected(rows: list[JobRow], order: str, **filters: Any) -> list[str]:
    found = [
        row
        for row in rows
        if (not filters.get("states") or JobState(row.state) in filters["states"])
        and filters.get("name") in (None, row.name)
        and filters.get("owner") in (None, row.owner)
        and (filters.get("search") or "").lower() in row.name
        and (order != "finished" or row.finished_at is not None)
    ]
    return [row.id for row in sorted(found, key=ORDERS[order], reverse=order != "oldest")]


FILTERS: list[dict[str, Any]] = [
    {},
    {"states": [F]},
    {"states": [Q, W, R, I]},
    {"states": [S, C, Q]},
    {"name": "bert-dense"},
    {"search": "dense"},
    {"search": "BERT-"},
    {"search": "v_3"},
    {"search": "%"},
    {"owner": "bob", "states": [S, F]},
    {"owner": "alice", "name": "dense", "search": "ens", "states": [S, Q, F, C]},
]


@pytest.mark.thorough
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("order", ORDERS)
def test_pages_forth_and_back(database: Database, many: list[JobRow], order: Any) -> None:
    for filters in FILTERS:
        wanted = expected(many, order, **filters)
        for limit in (1, 4, 100):
            with database.read() as session:
                walk(session, wanted, {"order": order, "limit": limit, **filters})


def walk(session: Session, wanted: list[str], asked: dict[str, Any]) -> None:
    """To the last page, and back by the same pages."""
    pages = [jobs.page_of_jobs(session, **asked)]
    assert pages[0].previous is None
    while (cursor := pages[-1].next) is not None:
        pages.append(jobs.page_of_jobs(session, cursor=cursor, **asked))
    assert [row.id for page in pages for row in page.rows] == wanted, asked
    back = pages[-1]
    for earlier in reversed(pages[:-1]):
        assert back.previous is not None
        back = jobs.page_of_jobs(session, cursor=back.previous, **asked)
        assert [row.id for row in back.rows] == [row.id for row in earlier.rows], asked
        assert back.next is not None
    assert back.previous is None


def test_counts_are_those_of_the_lists(database: Database, many: list[JobRow]) -> None:
    asked = ({}, {"owner": "bob"}, {"name": "dense"}, {"search": "bert"}, {"owner": "bob", "search": "bert"})
    for filters in asked:
        with database.read() as session:
            counts = jobs.count_by_state(session, **filters)
        assert list(counts) == list(JobState)
        for state, count in counts.items():
            assert count == len(expected(many, "newest", states=[state], **filters))


def test_a_page_back_holds_what_has_come_in_between(database: Database) -> None:
    with database.write() as session:
        ids = [submit(session, force=True, now=AT + timedelta(seconds=n))[0].id for n in range(4)]
    with database.read() as session:
        first = jobs.page_of_jobs(session, limit=2)
        second = jobs.page_of_jobs(session, limit=2, cursor=first.next)
    assert [row.id for row in second.rows] == [ids[1], ids[0]]
    with database.write() as session:
        new = submit(session, force=True, now=AT + timedelta(seconds=9))[0].id
    with database.read() as session:
        back = jobs.page_of_jobs(session, limit=2, cursor=second.previous)
        assert [row.id for row in back.rows] == [ids[3], ids[2]] and back.previous is not None
        top = jobs.page_of_jobs(session, limit=2, cursor=back.previous)
        assert [row.id for row in top.rows] == [new] and top.previous is None


def test_a_page_whose_rows_are_gone_leads_back(database: Database) -> None:
    ids = [job_in(database, Q) for _ in range(2)]
    with database.read() as session:
        cursor = jobs.page_of_jobs(session, states=[Q], limit=1).next
    with database.write() as session:
        for job_id in ids:
            jobs.request_cancel(session, job_id)
    with database.read() as session:
        page = jobs.page_of_jobs(session, states=[Q], limit=1, cursor=cursor)
        assert page.rows == [] and page.next is None and page.previous is not None
        assert jobs.page_of_jobs(session, states=[Q], limit=1, cursor=page.previous).rows == []


def test_what_is_refused(database: Database) -> None:
    job_in(database, S)
    job_in(database, S)
    with database.read() as session:
        cursor = jobs.page_of_jobs(session, limit=1).next
        for other in ("oldest", "finished"):
            with pytest.raises(RequestError, match=r"cursor: given .* leave it out"):
                jobs.page_of_jobs(session, limit=1, order=other, cursor=cursor)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match=r"order: given 'best'; allowed: newest, oldest, finished"):
            jobs.page_of_jobs(session, order="best")  # type: ignore[arg-type]
        with pytest.raises(RequestError, match=r"search: given 129 characters; allowed: at most 128"):
            jobs.page_of_jobs(session, search="x" * 129)
        assert jobs.page_of_jobs(session, search="a\0b", name="a\0").rows == []
        assert jobs.page_of_jobs(session, order="finished", states=[Q, R]).rows == []


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("order", ORDERS)
def test_no_page_sorts_or_looks_rows_up_to_filter_them(
    database: Database, many: list[JobRow], order: Any
) -> None:
    """Keys come from an index that has all that is asked about, in the order of the page."""
    for filters in FILTERS:
        with plans_of(database) as plans, database.read() as session:
            page = jobs.page_of_jobs(session, limit=2, order=order, **filters)
            if page.next is not None:
                page = jobs.page_of_jobs(session, limit=2, order=order, cursor=page.next, **filters)
                jobs.page_of_jobs(session, limit=2, order=order, cursor=page.previous, **filters)
            jobs.count_by_state(session, **{k: v for k, v in filters.items() if k != "states"})
        keys = [plan for plan in plans if "ORDER BY" in plan]
        assert keys or (order, filters) == ("finished", {"states": [Q, W, R, I]})
        assert not any("TEMP B-TREE" in plan for plan in keys), keys
        if "search" in filters or order == "finished" or not filters:
            assert all("COVERING INDEX" in plan for plan in keys), keys
        counts = [plan for plan in plans if "count(*)" in plan]
        assert counts and all("COVERING INDEX" in plan for plan in counts), counts


def test_jobs_by_the_beginning_of_their_ids(database: Database, many: list[JobRow]) -> None:
    for length in (4, 5, 16):
        prefix = many[7].id[:length]
        with database.read() as session:
            rows, _ = jobs.list_jobs(session, id_prefix=prefix)
            assert [row.id for row in rows] == [
                one for one in expected(many, "newest") if one.startswith(prefix)
            ]
            assert many[7].id in [row.id for row in rows]
            state = JobState(many[7].state)
            others = [one for one in JobState if one is not state]
            assert jobs.list_jobs(session, id_prefix=many[7].id, states=[state])[0]
            assert not jobs.list_jobs(session, id_prefix=many[7].id, states=others)[0]
            assert not jobs.list_jobs(session, id_prefix=many[7].id, name="no-such-name")[0]
