"""Quotas of one owner; admins, and servers without tokens, have none."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from dietcode_server.api.callers import EVERYBODY, Caller
from dietcode_server.api.followers import Followers
from dietcode_server.api.problems import Refusal
from dietcode_server.settings import Settings
from dietcode_server.store.owners import num_open
from dietcode_server.store.shares import bytes_of

_MINUTE = 60.0
MAX_KEPT = 10_000


class Rates:
    """Rates at which each of many acts: buckets that hold a minute's worth and fill again evenly.

    Thread-safe. The buckets of `MAX_KEPT` are kept, those that were used last.
    """

    def __init__(self) -> None:
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, who: str, per_minute: int, now: float | None = None) -> float:
        """Count one; the seconds to wait for it where there were too many, else 0."""
        now = time.monotonic() if now is None else now
        with self._lock:
            level = self._level(who, per_minute, now)
            if level < 1:
                self._keep(who, level, now)
                return (1 - level) * _MINUTE / per_minute
            self._keep(who, level - 1, now)
            return 0.0

    def left(self, who: str, per_minute: int, now: float | None = None) -> float:
        """The seconds to wait until `take` gives 0; counts nothing."""
        now = time.monotonic() if now is None else now
        with self._lock:
            return max(0.0, (1 - self._level(who, per_minute, now)) * _MINUTE / per_minute)

    def _level(self, who: str, per_minute: int, now: float) -> float:
        level, at = self._levels.get(who, (float(per_minute), now))
        return min(float(per_minute), level + (now - at) * per_minute / _MINUTE)

    def _keep(self, who: str, level: float, now: float) -> None:
        self._levels[who] = level, now
        self._levels.move_to_end(who)
        if len(self._levels) > MAX_KEPT:
            self._levels.popitem(last=False)


def check_rate(rates: Rates, settings: Settings, caller: Caller) -> None:
    """Count a submission.

    Raises
    ------
    Refusal
        There were too many within a minute.
    """
    most = settings.max_submissions_per_minute
    _count(rates, caller, most, f"at most {most} submissions a minute are allowed")


def check_rate_of_checks(rates: Rates, settings: Settings, caller: Caller) -> None:
    """Count a text that is checked, which takes as long as a submission and leaves nothing.

    Raises
    ------
    Refusal
        There were too many within a minute.
    """
    most = settings.max_checks_per_minute
    _count(rates, caller, most, f"at most {most} texts a minute are checked")


def _count(rates: Rates, caller: Caller, most: int, limit: str) -> None:
    wait = 0 if caller.is_admin else math.ceil(rates.take(caller.owner, most))
    if wait:
        raise too_many(f"{limit} for {caller.owner}; try again in {wait} s", wait)


def check_open(session: Session, settings: Settings, caller: Caller, owner: str) -> None:
    """Check how many jobs of an owner wait or run, and what all take, the one that was just added among them.

    Parameters
    ----------
    session : Session
    settings : Settings
    caller : Caller
        An admin has no such limit.
    owner : str
        Of the job.

    Raises
    ------
    Refusal
        There are too many.
    """
    if caller.is_admin:
        return
    kept, most = bytes_of(session, owner), settings.max_bytes_per_owner
    if kept > most:
        raise Refusal(
            "forbidden",
            403,
            f"specs and libraries of {owner} take {kept} bytes, and {most} are allowed; ask an administrator "
            "to delete old jobs (dietcode db prune) or to allow more",
        )
    if num_open(session, owner) <= settings.max_jobs_per_owner:
        return
    limit = f"at most {settings.max_jobs_per_owner} jobs of {owner} may wait or run"
    raise too_many(f"{limit}; wait until one is finished, or cancel one", int(_MINUTE))


def too_many(detail: str, wait_secs: int) -> Refusal:
    """Return the answer to a caller who exceeds a rate."""
    return Refusal("too-many", 429, detail, {"Retry-After": str(wait_secs)})


@contextmanager
def admitted_stream(followers: Followers, settings: Settings, caller: Caller) -> Iterator[None]:
    """Count an event stream for as long as it is open, also of an admin: each costs the server its time.

    Raises
    ------
    Refusal
        The owner has as many open as are allowed.
    """
    most = None if caller is EVERYBODY else settings.max_streams_per_owner
    if not followers.take(caller.owner, most):
        detail = f"{caller.owner} has {most} event streams open, the most that are allowed; close some"
        raise too_many(detail, 1)
    try:
        yield
    finally:
        followers.give_back(caller.owner)
