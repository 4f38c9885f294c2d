"""Following a job's events over connections that break: what both clients share.

A stream ends when a state in which nothing happens any more was seen and no event comes after it. A job that
was resumed has such states in the middle of its history, too: so after each one the server is asked for
what comes next. It answers 204 where a finished job has no more events; where it stays silent, the job's
present state decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx2
from pydantic import ValidationError

from dietcode.client import calls
from dietcode.client.answers import UnreachableError, reason_of
from dietcode.client.patience import Patience
from dietcode.errors import ServerError
from dietcode.protocol import FINAL_STATES, JobEvent, JobState

# The server sends a comment every 15 s: three missing ones are a dead connection.
SILENCE_SECS = 45.0
PEEK_SECS = 1.0
_FIRST_DELAY_SECS, _MAX_DELAY_SECS = 0.1, 5.0
_HEALTHY_SECS = 5.0

OnLost = Callable[[ServerError], None]


class Follower:
    """A reader's position in the events: the last one seen, and how long there has been no answer.

    Parameters
    ----------
    after : int
        Id of the last event that is already known; 0 for none.
    reconnect_secs : float
        How long to go on trying while the server does not answer.
    on_lost : callable, optional
        Told once for each time that the connection is lost.
    """

    def __init__(self, job_id: str, after: int, reconnect_secs: float, on_lost: OnLost | None = None) -> None:
        self.path = f"{calls.job_path(job_id)}/events"
        self.job_id = job_id
        self._after = after
        self._reconnect_secs = reconnect_secs
        self._on_lost = on_lost
        self._state: JobState | None = None
        self._failing_since: float | None = None
        self._connected_at = 0.0
        self._delay_secs = _FIRST_DELAY_SECS
        self._patience = Patience(SILENCE_SECS, of_events=True)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the next connection."""
        after = {"Last-Event-ID": str(self._after)} if self._after else {}
        return {"Accept": "text/event-stream", "Cache-Control": "no-store"} | after

    def patience(self) -> Patience:
        """Return what the next connection has: jobs may be silent for hours, but answer at once."""
        self._patience = Patience(SILENCE_SECS, of_events=True)
        return self._patience

    def connected(self) -> None:
        """The server answered."""
        self._connected_at = time.monotonic()

    def accept(self, sse: httpx2.ServerSentEvent) -> JobEvent | None:
        """Return the event, or None for one that was seen before.

        Raises
        ------
        ServerError
            It is no event of this job.
        """
        if not sse.data:
            return None
        try:
            event = JobEvent.model_validate_json(sse.data)
        except (ValidationError, RecursionError) as error:
            raise ServerError(f"job {self.job_id}: received what is no event: {reason_of(error)}") from None
        if event.job != self.job_id:
            raise ServerError(f"job {self.job_id}: received an event of another job")
        if event.id <= self._after:
            return None
        self._after = event.id
        self._patience.got_on()
        self._failing_since, self._delay_secs = None, _FIRST_DELAY_SECS
        if event.state is not None:
            self._state = event.state
        return event

    def lost(self, error: ServerError) -> float | None:
        """The connection broke or ended: seconds to wait before the next one, or None where it was the end.

        Raises
        ------
        ServerError
            `error`, where it is not worth trying again, or was tried for long enough.
        """
        if not isinstance(error, UnreachableError):
            raise error
        now = time.monotonic()
        if self._connected_at and now - self._connected_at > _HEALTHY_SECS:
            self._failing_since = None
        self._connected_at = 0.0
        if self._failing_since is None:
            self._failing_since, self._delay_secs = now, _FIRST_DELAY_SECS
            if self._on_lost is not None:
                self._on_lost(error)
        if now - self._failing_since + self._delay_secs > self._reconnect_secs:
            if self._state in FINAL_STATES:  # most likely nothing comes after it
                return None
            raise error
        delay, self._delay_secs = self._delay_secs, min(_MAX_DELAY_SECS, self._delay_secs * 2)
        return delay
