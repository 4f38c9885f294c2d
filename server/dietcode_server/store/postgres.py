"""What PostgreSQL needs beyond what SQLAlchemy does by itself."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, OperationalError

# A worker that was stopped in the middle of a transaction holds its locks no longer than this.
_IDLE_SECS = 30.0
_CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
_PASSING_STATES = frozenset({"40001", "40P01", "53300", "57P01", "57P02", "57P03", "57P05", "25P03"})


def connect_args(url: URL, busy_secs: float) -> dict[str, Any]:
    """Return options of a connection beside those of the URL: waits for locks and lost peers are bounded."""
    limits = {"lock_timeout": busy_secs, "idle_in_transaction_session_timeout": _IDLE_SECS}
    settings = " ".join(f"-c {name}={int(secs * 1000)}" for name, secs in limits.items())
    return {name: value for name, value in {**_CONNECT, "options": settings}.items() if name not in url.query}


def is_passing(error: BaseException) -> bool:
    """Return whether the same transaction may succeed later: a lost connection, or a conflict."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _PASSING_STATES or state.startswith("08")
    # Errors of the connection itself have no state.
    return isinstance(error, OperationalError) and type(error.orig).__module__.startswith("psycopg")


def message(error: object) -> str | None:
    """The first line of what the server said, without the statement; None of other errors."""
    diagnosis = getattr(error, "diag", None)
    found = getattr(diagnosis, "message_primary", None)
    return found if isinstance(found, str) else None
