"""Trying again where a connection was lost: a worker outlives a restart of its database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_before_delay, wait_exponential

from dietcode_server.store.database import ConnectionLostError

PATIENCE_SECS = 15.0
_FIRST_PAUSE_SECS = 0.05
_LONGEST_PAUSE_SECS = 1.0
T = TypeVar("T")


def patiently(work: Callable[[], T], secs: float = PATIENCE_SECS) -> T:
    """Call `work`, and again while it loses its connection to the database, for so many seconds.

    A connection may break after a transaction was committed and before that was heard, so `work` must notice
    what is there already.

    Raises
    ------
    ConnectionLostError
        There was no connection for `secs`.
    """
    again = Retrying(
        retry=retry_if_exception_type(ConnectionLostError),
        stop=stop_before_delay(secs),
        wait=wait_exponential(_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS),
        reraise=True,
    )
    return again(work)
