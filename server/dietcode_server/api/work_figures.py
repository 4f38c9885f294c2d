"""Figures of the work that is done, read from the database when Prometheus asks."""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from dietcode.protocol import FINAL_STATES, JobState
from dietcode_server.store import runners, slots
from dietcode_server.store.clock import clock
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import JobRow, TuningRecord

_SECS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400)
_MOST_ROWS = 5_000  # of one scrape; the next goes on
_COUNTED_SECS = 60.0  # for which a count of all jobs that ended is kept up to date instead: it reads them all
_ENDED = tuple(state.value for state in FINAL_STATES)
_GOING_ON = tuple(state.value for state in JobState if state not in FINAL_STATES)
RESULTS = ("measured", "pruned", "failed")


class WorkFigures:
    """Jobs that ended and candidates that were tried since this process began, and what waits now.

    Several servers on one database each count all of it. A candidate whose transaction ends after that of a
    later one can be missed.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge(
            "dietcode_jobs",
            "Jobs by state; a job that had ended and was resumed may count twice for a minute.",
            ["state"],
            registry=registry,
        )
        self.oldest = Gauge(
            "dietcode_queue_oldest_seconds",
            "How long the job that was submitted first of those queued has been there; 0 without one.",
            registry=registry,
        )
        self.waits = Histogram(
            "dietcode_job_wait_seconds",
            "From submission to the first start, of jobs that ended.",
            buckets=_SECS,
            registry=registry,
        )
        self.runs = Histogram(
            "dietcode_job_seconds",
            "From the first start to the end, of jobs that ended, by state.",
            ["state"],
            buckets=_SECS,
            registry=registry,
        )
        self.candidates = Counter(
            "dietcode_candidates",
            "Micro-kernels that were built and tried, by result; failed ones gave no or wrong results.",
            ["result"],
            registry=registry,
        )
        for result in RESULTS:
            self.candidates.labels(result)
        self.runners = Gauge(
            "dietcode_runners",
            "Servers and workers that run jobs and announced it lately.",
            registry=registry,
        )
        self.devices = Gauge(
            "dietcode_devices", "Different devices that they can measure.", registry=registry
        )
        self.slots = Gauge("dietcode_slots_taken", "Places where a job measures now.", registry=registry)
        self._lock = threading.Lock()
        self._ended: tuple[datetime, str] = (utc_now(), "")
        self._record: int | None = None
        self._num_ended: Counts[str] = Counts()
        self._counted_until = -_COUNTED_SECS

    def read(self, session: Session) -> None:
        """Bring everything up to date."""
        with self._lock:
            newly = self._read_ended(session)
            self._read_jobs(session, newly)
            self._read_queue(session)
            now = clock(session)
            self.runners.set(len(runners.live(session, now=now)))
            self.devices.set(len(runners.devices(session, now=now)))
            self.slots.set(len(slots.holders(session, now=now)))
            self._read_candidates(session)

    def _read_jobs(self, session: Session, newly: Counts[str]) -> None:
        """Count jobs: the few that have not ended each time, the others once a minute.

        Parameters
        ----------
        newly : Counter of str
            How many ended since it was asked last, by state.
        """
        count = select(JobRow.state, func.count()).group_by(JobRow.state)
        if time.monotonic() > self._counted_until:
            ended = session.execute(count.where(JobRow.state.in_(_ENDED)))
            self._num_ended = Counts({state: int(number) for state, number in ended})
            self._counted_until = time.monotonic() + _COUNTED_SECS
        else:
            self._num_ended += newly
        others = session.execute(count.where(JobRow.state.in_(_GOING_ON)))
        num_jobs = {state: int(number) for state, number in others} | self._num_ended
        for state in JobState:
            self.jobs.labels(state.value).set(num_jobs.get(state.value, 0))

    def _read_queue(self, session: Session) -> None:
        query = select(func.min(JobRow.created_at)).where(JobRow.state == JobState.QUEUED.value)
        oldest = session.scalar(query)
        self.oldest.set(0.0 if oldest is None else max(0.0, (utc_now() - oldest).total_seconds()))

    def _read_ended(self, session: Session) -> Counts[str]:
        """Read the jobs that ended since the last time, and return how many, by state."""
        newly: Counts[str] = Counts()
        at, job_id = self._ended
        by_end = JobRow.finished_at.desc(), JobRow.id.desc()
        ended = select(JobRow.finished_at, JobRow.id).where(JobRow.finished_at.is_not(None))
        last = session.execute(ended.order_by(*by_end).limit(1)).first()
        # One row, by an index: what wants many reads all of a table of which PostgreSQL has no statistics.
        if last is None or last.finished_at < at or tuple(last) == self._ended:
            return newly
        later = JobRow.finished_at >= at, or_(JobRow.finished_at > at, JobRow.id > job_id)
        query = (
            select(JobRow.id, JobRow.state, JobRow.created_at, JobRow.started_at, JobRow.finished_at)
            .where(*later)
            .order_by(JobRow.finished_at, JobRow.id)
            .limit(_MOST_ROWS)
        )
        for ended_id, state, created, started, finished in session.execute(query):
            assert finished is not None  # it is later than another
            self._ended = (finished, ended_id)
            newly[state] += 1
            if started is not None:
                self.waits.observe(max(0.0, (started - created).total_seconds()))
                self.runs.labels(state).observe(max(0.0, (finished - started).total_seconds()))

        return newly

    def _read_candidates(self, session: Session) -> None:
        if self._record is None:
            self._record = session.scalar(select(func.max(TuningRecord.id))) or 0
        query = (
            select(TuningRecord.id, TuningRecord.kind, TuningRecord.error, TuningRecord.line)
            .where(TuningRecord.id > self._record)
            .order_by(TuningRecord.id)
            .limit(_MOST_ROWS)
        )
        for record_id, kind, error, line in session.execute(query):
            self._record = record_id
            if kind == "micro_kernel":
                pruned = "pruned" if line.get("pruned") else "measured"
                self.candidates.labels(pruned if error is None else "failed").inc()
