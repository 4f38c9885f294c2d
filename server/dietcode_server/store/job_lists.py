"""Lists of jobs: filtered, in several orders, a page at a time; and how many there are in each state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, defer

from dietcode.errors import RequestError
from dietcode.protocol import FINAL_STATES, JobState
from dietcode.workload.text import clip
from dietcode_server.store.paging import Page, find_page
from dietcode_server.store.tables import JobRow

Order = Literal["newest", "oldest", "finished"]
ORDERS: tuple[Order, ...] = get_args(Order)
MAX_SEARCH_CHARS = 128  # as long as names


def page_of_jobs(
    session: Session,
    *,
    states: Sequence[JobState] = (),
    name: str | None = None,
    id_prefix: str | None = None,
    search: str | None = None,
    owner: str | None = None,
    order: Order = "newest",
    limit: int = 50,
    cursor: str | None = None,
) -> Page[JobRow]:
    """A page of jobs, without their specs, which are read where they are asked for.

    Parameters
    ----------
    states : sequence of JobState
        Only jobs in one of these; empty: in any.
    name : str, optional
        Only jobs of exactly this name.
    id_prefix : str, optional
        Only jobs whose id begins so; not together with `search` or the order of ends.
    search : str, optional
        Only jobs whose name has this text in it, whatever its case.
    order : str
        By submission, the newest or the oldest first; or those that finished, the last one first.
    cursor : str, optional
        `next` or `previous` of a page with the same filters and order.

    Raises
    ------
    RequestError
        `limit`, `order` or `search` is out of range, or `cursor` is not from a page of this order.
    """
    if order not in ORDERS:
        raise RequestError(f"order: given {clip(order)}; allowed: {', '.join(ORDERS)}")
    query = select(JobRow).options(defer(JobRow.spec))  # it can be a megabyte
    wanted = frozenset(JobState(state) for state in states)
    if order == "finished":
        wanted = (wanted or FINAL_STATES) & FINAL_STATES
        if not wanted:
            return Page([], None, None)
        parts = [_read_along(wanted, name, search, owner)]
        return find_page(session, query, JobRow, parts, limit, cursor, by=JobRow.finished_at)
    parts = (
        [_read_along(wanted, name, search, owner)] if search else _by_index(wanted, name, owner, id_prefix)
    )
    return find_page(session, query, JobRow, parts, limit, cursor, descending=order == "newest")


def list_jobs(
    session: Session,
    *,
    states: Sequence[JobState] = (),
    name: str | None = None,
    id_prefix: str | None = None,
    owner: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> tuple[list[JobRow], str | None]:
    """Return a page of jobs, newest first, and the cursor of the next page.

    Parameters
    ----------
    states, name, id_prefix, owner, limit, cursor
        As `page_of_jobs` takes them.
    """
    page = page_of_jobs(
        session, states=states, name=name, id_prefix=id_prefix, owner=owner, limit=limit, cursor=cursor
    )
    return page.rows, page.next


def count_by_state(
    session: Session, *, name: str | None = None, search: str | None = None, owner: str | None = None
) -> dict[JobState, int]:
    """Return how many jobs are in each state, 0 included.

    Parameters
    ----------
    name, search, owner
        As `page_of_jobs` takes them.

    Raises
    ------
    RequestError
        `search` is too long.
    """
    wanted = _read_along(frozenset(), name, search, owner) if search else _same(name, owner)
    state = _any(JobRow.state) if search else JobRow.state
    found = dict(session.execute(select(state, func.count()).where(*wanted).group_by(state)).all())
    return {state: int(found.get(state.value, 0)) for state in JobState}


def _same(name: str | None, owner: str | None) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if owner is not None:
        wanted.append(JobRow.owner == _plain(owner))
    if name is not None:
        wanted.append(JobRow.name == _plain(name))
    return wanted


def _by_index(
    states: frozenset[JobState], name: str | None, owner: str | None, id_prefix: str | None
) -> list[list[ColumnElement[bool]]]:
    """Each index of owners and names goes on with the state, and then with the order of the page.

    Of a prefix of ids there are few rows, which the primary key finds.
    """
    same = _same(name, owner)
    if id_prefix is not None:  # of hex digits, which come before g in every collation
        found = [*same, JobRow.id >= id_prefix, JobRow.id < f"{id_prefix}g"]
        return [[*found, JobRow.state.in_(sorted(state.value for state in states or JobState))]]
    some = {state.value for state in states or (JobState if same else ())}
    return [[*same, JobRow.state == state] for state in sorted(some)] or [[]]


def _read_along(
    states: frozenset[JobState],
    name: str | None,
    search: str | None,
    owner: str | None,
) -> list[ColumnElement[bool]]:
    """Conditions that are looked at row by row, along an index in the order of the page that has them all.

    No other index is to be tempting: what it finds would have to be looked up and sorted.
    """
    wanted: list[ColumnElement[bool]] = []
    if states:
        wanted.append(_any(JobRow.state).in_(sorted(state.value for state in states)))
    if owner is not None:
        wanted.append(_any(JobRow.owner) == _plain(owner))
    if name is not None:
        wanted.append(_any(JobRow.name) == _plain(name))
    if search:
        if len(search) > MAX_SEARCH_CHARS:
            raise RequestError(
                f"search: given {len(search)} characters; allowed: at most {MAX_SEARCH_CHARS}, as in names"
            )
        wanted.append(_any(JobRow.name).contains(_plain(search).lower(), autoescape=True))
    return wanted


def _any(column: InstrumentedAttribute[str]) -> ColumnElement[str]:
    """A column that is in no index, as far as the database can see."""
    found: ColumnElement[Any] = func.coalesce(column, "")
    return found


def _plain(text: str) -> str:
    """Text that PostgreSQL takes, too: its texts have no NUL."""
    return text.replace("\0", "?")
