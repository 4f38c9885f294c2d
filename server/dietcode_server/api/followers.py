"""Those who follow jobs: one question to the database for all of a job, and the streams of each owner."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dietcode.protocol import FINAL_STATES, JobEvent, JobState
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, wire
from dietcode_server.store.database import Database

POLL_SECS = 0.25
_MAX_KEPT = 500  # events of a job


@dataclass
class _Followed:
    """What the last question about a job gave: its newest events, in order, the last of which is `last`."""

    num_streams: int = 0
    asked_at: float | None = None
    state: JobState = JobState.QUEUED
    last: int = -1
    newest: Sequence[JobEvent] = field(default_factory=tuple)

    def after(self, seen: int) -> list[JobEvent] | None:
        """Return the events with numbers above `seen`, or None where some of them are not known."""
        if seen >= self.last >= 0:
            return []
        known = [event for event in self.newest if event.id > seen]
        return known if known and known[0].id == seen + 1 and known[-1].id == self.last else None


class Followers:
    """The open streams of a server; thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Followed] = {}
        self._owners: Counter[str] = Counter()
        self._lock = threading.Lock()

    def num_of(self, owner: str) -> int:
        """Return how many streams an owner has open."""
        with self._lock:
            return self._owners[owner]

    def take(self, owner: str, most: int | None) -> bool:
        """Count one more stream of an owner, unless there are so many; return whether it was counted."""
        with self._lock:
            if most is not None and self._owners[owner] >= most:
                return False
            self._owners[owner] += 1
            return True

    def give_back(self, owner: str) -> None:
        """Count one stream less."""
        with self._lock:
            self._owners[owner] -= 1
            self._owners += Counter()  # without those that are zero

    @contextmanager
    def following(self, job_id: str) -> Iterator[None]:
        """Remember what is known of a job for as long as a stream of it is open."""
        with self._lock:
            self._jobs.setdefault(job_id, _Followed()).num_streams += 1
        try:
            yield
        finally:
            with self._lock:
                followed = self._jobs[job_id]
                followed.num_streams -= 1
                if not followed.num_streams:
                    del self._jobs[job_id]

    def known(self, job_id: str, seen: int) -> tuple[list[JobEvent], bool] | None:
        """Return what `news` would, where another stream has just asked; None where this one is to ask."""
        now = time.monotonic()
        with self._lock:
            followed = self._jobs[job_id]
            if followed.asked_at is None or now - followed.asked_at >= POLL_SECS:
                followed.asked_at = now  # the others wait for this one's answer
                return None
            found = followed.after(seen)
            if found is None:
                return None
            return found, followed.state in FINAL_STATES

    def news(self, database: Database, job_id: str, seen: int) -> tuple[list[JobEvent], bool]:
        """Return events with numbers above `seen`, and whether they end the story as it stands now."""
        with database.read() as session:
            row = jobs.get(session, job_id)
            state, last = JobState(row.state), row.num_events
            # Where another process adds events in between, they wait for the next question.
            rows = [event for event in job_events.events_after(session, job_id, seen) if event.seq <= last]
            found = [wire.event_to_wire(event) for event in rows]
        reached = found[-1].id if found else seen
        with self._lock:
            followed = self._jobs.get(job_id)
            if followed is not None and reached >= last >= followed.last:
                followed.state, followed.last = state, last
                older = [event for event in followed.newest if found and event.id < found[0].id]
                follows = older and older[-1].id + 1 == found[0].id
                if found:  # streams that are a little behind need the ones before, too
                    followed.newest = [*(older if follows else ()), *found][-_MAX_KEPT:]
        return found, state in FINAL_STATES and reached >= last
