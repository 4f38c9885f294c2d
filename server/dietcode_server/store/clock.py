"""The time by which leases end, on which all who share a database agree."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, select
from sqlalchemy.orm import Session

from dietcode_server.store.locks import is_sqlite
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.times import UtcDateTime


def clock(session: Session | Connection) -> datetime:
    """The database's time; of SQLite this machine's."""
    if is_sqlite(session):
        return utc_now()
    return session.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()
