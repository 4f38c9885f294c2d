"""Trying again where a connection was lost: a worker outlives a restart of its database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

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
    deadline = time.monotonic() + secs
    pause_secs = _FIRST_PAUSE_SECS
    while True:
        try:
            return work()
        except ConnectionLostError:
            if time.monotonic() + pause_secs > deadline:
                raise
        time.sleep(pause_secs)
        pause_secs = min(2 * pause_secs, _LONGEST_PAUSE_SECS)
