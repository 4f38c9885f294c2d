"""What a worker does, told to whoever watches its job."""

from __future__ import annotations

import time
from typing import Any

from dietcode.protocol import Progress
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.patience import patiently

_SAME_STEP_SECS = 5.0  # how often an unchanged step is noted again, for its time left


class Reporter:
    """Writes the tuner's events into the job's events."""

    def __init__(self, database: Database, job_id: str, runner: str) -> None:
        self._database = database
        self._job_id, self._runner = job_id, runner
        self._last: tuple[Any, ...] = ()
        self._last_at = 0.0
        self.best_gflops: float | None = None

    def on_event(self, event: Any) -> None:
        """Take in a `dietcode.tuner.events.Event`; unchanged steps are noted every few seconds."""
        step = (event.stage, event.message, event.done, event.total)
        now = time.monotonic()
        if step == self._last and now - self._last_at < _SAME_STEP_SECS:
            return
        self._last, self._last_at = step, now
        if event.best_gflops is not None and event.stage == "measure":
            self.best_gflops = event.best_gflops
        progress = Progress(
            stage=event.stage,
            message=event.message,
            done=event.done,
            total=event.total,
            best_gflops=self.best_gflops if event.best_gflops is None else event.best_gflops,
            secs_left=event.secs_left,
        )
        patiently(lambda: self._add(progress, dict(event.data)))

    def on_wait(self, message: str) -> None:
        """Note what is waited for."""
        patiently(lambda: self._add(Progress(stage="calibrate", message=message), {}))

    def _add(self, progress: Progress, data: dict[str, Any]) -> None:
        with self._database.write() as session:
            jobs.add_progress(session, self._job_id, progress, data, runner=self._runner)
