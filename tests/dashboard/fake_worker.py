"""A worker that measures nothing: it takes a job of a real server and tells what a test wants to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from served import Served
from small_libraries import spec_data

from dietcode.protocol import JobState, Progress
from dietcode_server.store import jobs
from dietcode_server.store.database import Database

_ELSEWHERE = {"kind": "llvm", "mcpu": "znver4", "num_cores": 96}  # no machine that runs this test
_numbers = count()


class FakeWorker:
    """Holds one job; what it tells goes into the server's database, as a worker's steps do.

    Attributes
    ----------
    job_id : str
        The job that it works on.
    """

    def __init__(self, server: Served, database: Database, name: str) -> None:
        self._server, self._database = server, database
        self.job_id = server.submit(spec_data(name, target=_ELSEWHERE), force=True).id

    def start(self) -> None:
        """Take the job, before the server's own engine sees it in the queue."""
        with self._database.write() as session:
            jobs.request_cancel(session, self.job_id)
            jobs.resume(session, self.job_id)
            assert jobs.claim(session, self.job_id, "nobody/1/1.00", lease_secs=3600)

    def tell(self, stage: str, message: str, data: dict[str, Any] | None = None, **progress: Any) -> None:
        """One step."""
        with self._database.write() as session:
            jobs.add_progress(session, self.job_id, Progress(stage=stage, message=message, **progress), data)

    def decide(self, number: int, stop: str | None = None) -> None:
        """One round."""
        names = [f"{number + row}x16" for row in range(1, 5)]
        data = {
            "number": number,
            "measured": names,
            "pruned": names[2:3],
            "failed": names[3:],
            "dropped": ["2x48"],
            "expansions": [
                {"shape": {"m": 37}, "cause": "padding", "served": 0.57, "micro_kernels": ["6x32", "5x32"]}
            ],
        }
        said = f"round {number}; tried 4, pruned 1, failed 1; gained 1.0% of 20.0% promised"
        self.tell("measure", said + (f"; stopped: {stop}" if stop else ""), data, done=4 * number, total=40)

    def finish(self, state: JobState, error: str | None = None) -> None:
        """End the job."""
        with self._database.write() as session:
            jobs.finish(session, self.job_id, state, error=error)

    def state(self) -> JobState:
        """As the server has it."""
        return self._server.client.job(self.job_id).state


@contextmanager
def fake_worker(server: Served, name: str | None = None) -> Iterator[FakeWorker]:
    """A job that waits, and who may take it; ended afterwards whatever the test did."""
    database = Database(f"sqlite:///{server.folder}/data/dietcode.db")
    worker = FakeWorker(server, database, name or f"faked-{next(_numbers)}")
    try:
        yield worker
    finally:
        if worker.state() not in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED):
            if worker.state() == JobState.RUNNING:
                worker.finish(JobState.CANCELLED)
            else:
                server.client.cancel(worker.job_id)
        database.dispose()
