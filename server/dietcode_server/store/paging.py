"""Pages by key: row after row in one order, so that new rows neither shift nor repeat the next page."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import Select, and_, or_
from sqlalchemy.orm import Session

from dietcode.errors import RequestError
from dietcode.workload.text import clip
from dietcode_server.store.tables import JobRow, LibraryRow

MAX_LIMIT = 500
Row = TypeVar("Row", JobRow, LibraryRow)


def newest_first(
    session: Session, query: Select[Row], table: type[Row], limit: int, cursor: str | None
) -> tuple[list[Row], str | None]:
    """One page of `query`, by `created_at` and then `id`, and the cursor of the next.

    Raises
    ------
    RequestError
        `limit` is out of range, or `cursor` is none that an earlier page gave.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise RequestError(f"limit: given {clip(limit)}; allowed: 1 to {MAX_LIMIT}")
    if cursor is not None:
        at, key = _decode(cursor, str if table is JobRow else int)
        query = query.where(or_(table.created_at < at, and_(table.created_at == at, table.id < key)))
    query = query.order_by(table.created_at.desc(), table.id.desc()).limit(limit + 1)
    rows = list(session.scalars(query))
    if len(rows) <= limit:
        return rows, None
    rows.pop()
    return rows, _encode(rows[-1].created_at, rows[-1].id)


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
