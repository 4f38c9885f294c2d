"""How much one owner may ask for; admins, and a server without tokens, have no such limits."""

from __future__ import annotations

import math
import threading
import time

from sqlalchemy.orm import Session

from dietcode_server.api.callers import Caller
from dietcode_server.api.problems import Refusal
from dietcode_server.api.settings import Settings
from dietcode_server.store.owners import num_open

_MINUTE = 60.0


class Rates:
    """Submissions of each owner: a bucket that holds a minute's worth and fills again evenly; thread-safe."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, owner: str, per_minute: int, now: float | None = None) -> float:
        """Count one submission; the seconds to wait for it where there were too many, else 0."""
        now = time.monotonic() if now is None else now
        with self._lock:
            level, at = self._levels.get(owner, (float(per_minute), now))
            level = min(float(per_minute), level + (now - at) * per_minute / _MINUTE)
            if level < 1:
                self._levels[owner] = level, now
                return (1 - level) * _MINUTE / per_minute
            self._levels[owner] = level - 1, now
            return 0.0


def check_rate(rates: Rates, settings: Settings, caller: Caller) -> None:
    """Count a submission.

    Raises
    ------
    Refusal
        There were too many within a minute.
    """
    if caller.is_admin:
        return
    wait = math.ceil(rates.take(caller.owner, settings.max_submissions_per_minute))
    if wait:
        limit = f"at most {settings.max_submissions_per_minute} submissions a minute are allowed"
        raise _too_many(f"{limit} for {caller.owner}; try again in {wait} s", wait)


def check_open(session: Session, settings: Settings, caller: Caller, owner: str) -> None:
    """Check how many jobs of an owner wait or run, the one that was just added among them.

    Raises
    ------
    Refusal
        There are too many.
    """
    if caller.is_admin or num_open(session, owner) <= settings.max_jobs_per_owner:
        return
    limit = f"at most {settings.max_jobs_per_owner} jobs of {owner} may wait or run"
    raise _too_many(f"{limit}; wait until one is finished, or cancel one", int(_MINUTE))


def _too_many(detail: str, wait_secs: int) -> Refusal:
    return Refusal("too-many", 429, detail, {"Retry-After": str(wait_secs)})
