"""Who waits for whom: locks that SQLite's one writer makes needless, and rows that are entered once."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, func, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from dietcode_server.store.tables import Base

# Keys of advisory locks; any fixed numbers will do.
_KEYS = {"submit": 0x64690001, "publish": 0x64690002}


def is_sqlite(session: Session | Connection) -> bool:
    """Return whether the database is SQLite."""
    bind = session if isinstance(session, Connection) else session.get_bind()
    return bind.dialect.name == "sqlite"


def one_at_a_time(session: Session, what: Literal["submit", "publish"]) -> None:
    """Let no other transaction past the same call before this one ends; a writer of SQLite is alone."""
    if not is_sqlite(session):
        session.execute(select(func.pg_advisory_xact_lock(_KEYS[what])))


def insert_new(session: Session, table: type[Base], **values: Any) -> bool:
    """Insert a row whose key nobody else has; whether it was new.

    Where another transaction has inserted the same key, this one waits for its end.
    """
    insert: Any = sqlite.insert if is_sqlite(session) else postgresql.insert
    statement = insert(table.__table__).values(**values).on_conflict_do_nothing()
    return session.execute(statement.returning(*inspect(table).primary_key)).first() is not None


def replace_where(session: Session, table: type[Base], free: ColumnElement[bool], **values: Any) -> bool:
    """Insert a row, or put it in the place of the one with its key where `free` holds of that one.

    Of several transactions that try at once, one does it; the others wait for its end, and see its row.

    Returns
    -------
    bool
        Whether the row is there now.
    """
    insert: Any = sqlite.insert if is_sqlite(session) else postgresql.insert
    key = inspect(table).primary_key
    rest = {name: value for name, value in values.items() if name not in {column.name for column in key}}
    statement = insert(table.__table__).values(**values)
    statement = statement.on_conflict_do_update(index_elements=key, set_=rest, where=free)
    return session.execute(statement.returning(*key)).first() is not None
