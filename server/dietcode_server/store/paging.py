"""Pages by key: row after row in one order, so that new rows neither shift nor repeat the next page.

The keys of a page are found first, by indexes that have them in its order, and then the rows: a page deep in
a hundred thousand rows costs what the first one does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from dietcode.errors import RequestError
from dietcode.workload.text import clip
from dietcode_server.store.tables import JobRow, LibraryRow

MAX_LIMIT = 500
Row = TypeVar("Row", JobRow, LibraryRow)
Conditions = Sequence[ColumnElement[bool]]
_BACK = "back"


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Some rows of a list.

    Attributes
    ----------
    next, previous : str or None
        Cursors of the pages after and before it; None at the end.
    """

    rows: list[Row]
    next: str | None
    previous: str | None


@dataclass(frozen=True)
class _Position:
    """Between which rows a page begins: after a key in the order of the list, or before it."""

    at: datetime
    key: Any
    back: bool


def find_page(
    session: Session,
    query: Select[Row],
    table: type[Row],
    parts: Sequence[Conditions],
    limit: int,
    cursor: str | None,
    *,
    by: InstrumentedAttribute[Any] | None = None,
    descending: bool = True,
) -> Page[Row]:
    """One page, in the order of a time and then of `id`.

    Parameters
    ----------
    query : Select
        What is read of each row.
    parts : sequence of conditions
        Rows that fit any of them are listed; no row fits two. Each has an index of its columns that ends
        with the time and `id`: one that is in the order of the page for each part, as it is not for all.
    by : column, optional
        The time; `created_at` by default. Rows without it are not listed.
    descending : bool
        The latest first.

    Raises
    ------
    RequestError
        `limit` is out of range, or `cursor` is not from an earlier page of this order.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise RequestError(f"limit: given {clip(limit)}; allowed: 1 to {MAX_LIMIT}")
    time: InstrumentedAttribute[Any] = table.created_at if by is None else by
    order = f"{time.key} {'down' if descending else 'up'}"
    kind = str if table is JobRow else int
    position = None if cursor is None else _decode(cursor, kind, order)
    back = position is not None and position.back
    down = descending != back
    beyond = _beyond(table, time, position, down)
    keys: list[tuple[datetime, Any]] = []
    for conditions in parts:
        found = select(time, table.id).where(*conditions, *beyond).limit(limit + 1)
        found = found.order_by(*((time.desc(), table.id.desc()) if down else (time, table.id)))
        keys += [(at, row_id) for at, row_id in session.execute(found)]
    shown = sorted(sorted(keys, reverse=down)[:limit], reverse=descending)
    more = len(keys) > limit
    ids = [row_id for _, row_id in shown]
    rows = {row.id: row for row in session.scalars(query.where(table.id.in_(ids)))} if ids else {}
    has_next, has_previous = (True, more) if back else (more, position is not None)
    first = shown[0] if shown else (position.at, position.key) if position is not None else None
    last = shown[-1] if shown else first
    return Page(
        [rows[row_id] for row_id in ids],
        _encode(*last, order, False) if has_next and last is not None else None,
        _encode(*first, order, True) if has_previous and first is not None else None,
    )


def _beyond(table: Any, time: Any, position: _Position | None, down: bool) -> tuple[ColumnElement[bool], ...]:
    """Return the condition for rows after a position, in the order in which they are read."""
    if position is None:
        return (time.is_not(None),)  # of a column that is never null it says nothing
    # The first condition says to SQLite where in an index to begin.
    if down:
        return time <= position.at, or_(time < position.at, table.id < position.key)
    return time >= position.at, or_(time > position.at, table.id > position.key)


def _encode(at: datetime, key: str | int, order: str, back: bool) -> str:
    parts = [at.astimezone(UTC).isoformat(), key, order, *([_BACK] if back else [])]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def _decode(cursor: str, kind: type[str] | type[int], order: str) -> _Position:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, key, given, *back = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        when = datetime.fromisoformat(at)
        if type(key) is not kind or when.tzinfo is None or (isinstance(key, int) and abs(key) >= 1 << 63):
            raise ValueError(cursor)
        if given != order or back not in ([], [_BACK]):
            raise ValueError(cursor)
        return _Position(when.astimezone(UTC), key, bool(back))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RequestError(
            f"cursor: given {clip(cursor)}, which no page of this order gave; leave it out to begin anew"
        ) from error
