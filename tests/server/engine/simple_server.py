"""A database, an engine of simple workers, and supervisors over them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from small_libraries import spec_data

from dietcode.protocol import JobState
from dietcode.workload.parse import spec_from_data
from dietcode_server.engine.processes import LocalEngine
from dietcode_server.engine.supervisor import Supervisor
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow


class Server:
    """One server without HTTP; another may be on the same database.

    Parameters
    ----------
    max_attempts : int
        1: a worker that dies leaves an interrupted job.
    """

    def __init__(
        self, folder: Path, url: str | None = None, max_attempts: int = 1, lease_secs: float = 15.0
    ) -> None:
        self.url = url or f"sqlite:///{folder / 'dietcode.db'}"
        self.database = Database(self.url)
        self.database.upgrade()
        self.work, self.max_attempts = folder / "work", max_attempts
        worker = str(Path(__file__).with_name("simple_worker.py"))
        self.engine = LocalEngine(
            self.url,
            self.work,
            folder / "logs",
            heartbeat_secs=0.1,
            command=(sys.executable, worker),
            lease_secs=lease_secs,
        )
        self.supervisor = self.new_supervisor()

    def new_supervisor(self) -> Supervisor:
        return Supervisor(self.database, self.engine, self.max_attempts, retry_secs=0.2)

    def submit(self, name: str, **options: Any) -> str:
        spec = spec_from_data(spec_data(name))
        device = ("d", "a device", {"kind": "llvm"})
        with self.database.write() as session:
            row, _ = jobs.submit(
                session,
                spec=spec,
                target={"kind": "llvm"},
                device=device,
                runnable=True,
                force=False,
                idempotency_key=None,
                **options,
            )
            job_id = row.id
        self.supervisor.wake()
        return job_id

    def row(self, job_id: str) -> JobRow:
        with self.database.read() as session:
            found = jobs.get(session, job_id)
            session.expunge(found)
        return found

    def reach(self, job_id: str, *states: JobState, timeout_secs: float = 20.0) -> JobRow:
        wanted = {state.value for state in states}
        found: JobRow = self.wait(lambda: (row := self.row(job_id)).state in wanted and row, timeout_secs)
        return found

    def wait(self, until: Callable[[], Any], timeout_secs: float = 20.0) -> Any:
        deadline = time.monotonic() + timeout_secs
        while not (found := until()):
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(0.02)
        return found

    def processes(self, name: str) -> list[psutil.Process]:
        """Worker and its child."""
        path = self.work / f"{name}.pids"
        text = self.wait(lambda: path.exists() and path.read_text())
        return [psutil.Process(int(pid)) for pid in text.split()]

    def close(self) -> None:
        self.supervisor.stop()
        self.database.dispose()
