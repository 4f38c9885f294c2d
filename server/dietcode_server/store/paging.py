"""Pages by key: row after row in one order, so that new rows neither shift nor repeat the next page.

The keys of a page are found first, by indexes that have them in its order, and then the rows: a page deep in
a hundred thousand rows costs what the first one does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.orm import Session

from dietcode.errors import RequestError
from dietcode.workload.text import clip
from dietcode_server.store.tables import JobRow, LibraryRow

MAX_LIMIT = 500
Row = TypeVar("Row", JobRow, LibraryRow)
Conditions = Sequence[ColumnElement[bool]]


def newest_first(
    session: Session,
    query: Select[Row],
    table: type[Row],
    parts: Sequence[Conditions],
    limit: int,
    cursor: str | None,
) -> tuple[list[Row], str | None]:
    """One page, by `created_at` and then `id`, and the cursor of the next; None after the last.

    Parameters
    ----------
    query : Select
        What is read of each row.
    parts : sequence of conditions
        Rows that fit any of them are listed; no row fits two. Each has an index of its columns that ends
        with `created_at` and `id`: one that is in the order of the page for each part, as it is not for all.

    Raises
    ------
    RequestError
        `limit` is out of range, or `cursor` is none that an earlier page gave.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise RequestError(f"limit: given {clip(limit)}; allowed: 1 to {MAX_LIMIT}")
    later: Conditions = ()
    if cursor is not None:
        at, key = _decode(cursor, str if table is JobRow else int)
        # The first says to SQLite where in an index to begin.
        later = table.created_at <= at, or_(table.created_at < at, table.id < key)
    order = table.created_at.desc(), table.id.desc()
    keys: list[tuple[datetime, Any]] = []
    for conditions in parts:
        found = (
            select(table.created_at, table.id).where(*conditions, *later).order_by(*order).limit(limit + 1)
        )
        keys += [(created_at, row_id) for created_at, row_id in session.execute(found)]
    page = sorted(keys, reverse=True)[:limit]
    ids = [row_id for _, row_id in page]
    rows = {row.id: row for row in session.scalars(query.where(table.id.in_(ids)))} if ids else {}
    following = _encode(*page[-1]) if len(keys) > limit else None
    return [rows[row_id] for row_id in ids], following


def _encode(at: datetime, key: str | int) -> str:
    text = json.dumps([at.astimezone(timezone.utc).isoformat(), key])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str, kind: type[str] | type[int]) -> tuple[datetime, Any]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        when = datetime.fromisoformat(at)
        if type(key) is not kind or when.tzinfo is None or (isinstance(key, int) and abs(key) >= 1 << 63):
            raise ValueError(cursor)
        return when.astimezone(timezone.utc), key
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RequestError(
            f"cursor: given {clip(cursor)}, which no page gave; leave it out to begin with the newest"
        ) from error
