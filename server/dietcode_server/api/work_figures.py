"""Figures of the work that is done, read from the database when Prometheus asks."""

from __future__ import annotations

import threading
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from dietcode.protocol import JobState
from dietcode_server.store import runners, slots
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import JobRow, TuningRecord

_SECS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400)
_MOST_ROWS = 5_000  # of one scrape; the next goes on
RESULTS = ("measured", "pruned", "failed")


class WorkFigures:
    """Jobs that ended and candidates that were tried since this process began, and what waits now.

    Several servers on one database each count all of it. A candidate whose transaction ends after that of a
    later one can be missed.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge("dietcode_jobs", "Jobs by state.", ["state"], registry=registry)
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

    def read(self, session: Session) -> None:
        """Bring everything up to date."""
        with self._lock:
            rows = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
            num_jobs = {state: int(count) for state, count in rows}
            for state in JobState:
                self.jobs.labels(state.value).set(num_jobs.get(state.value, 0))
            self._read_queue(session)
            self.runners.set(len(runners.live(session)))
            self.devices.set(len(runners.devices(session)))
            self.slots.set(len(slots.holders(session)))
            self._read_ended(session)
            self._read_candidates(session)

    def _read_queue(self, session: Session) -> None:
        query = select(func.min(JobRow.created_at)).where(JobRow.state == JobState.QUEUED.value)
        oldest = session.scalar(query)
        self.oldest.set(0.0 if oldest is None else max(0.0, (utc_now() - oldest).total_seconds()))

    def _read_ended(self, session: Session) -> None:
        at, job_id = self._ended
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
            if started is not None:
                self.waits.observe(max(0.0, (started - created).total_seconds()))
                self.runs.labels(state).observe(max(0.0, (finished - started).total_seconds()))

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
