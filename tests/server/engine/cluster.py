"""A server that runs no jobs, and workers, as processes on one database; only the compiler is a stub."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from small_libraries import spec_data
from sqlalchemy import delete, select, update

from dietcode.client import Client
from dietcode.protocol import Job, JobState
from dietcode_server.store.database import Database
from dietcode_server.store.patience import patiently
from dietcode_server.store.tables import JobRow, RunnerRow, SlotRow

LEASE_SECS = 3.0
SCRIPT = str(Path(__file__).with_name("stub_process.py"))


class Cluster:
    """Processes over one database, and a client of its server.

    `begin_test` puts everything in place for one more test: they share the server.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.database = Database(url)
        self.begun: list[subprocess.Popen[str]] = []
        self.spec: dict[str, Any] = {}
        self._number = 0
        self.environment = os.environ | {
            "DIETCODE_SERVE_DATABASE_URL": url,
            "DIETCODE_SERVE_LOST_AFTER_SECS": str(LEASE_SECS),
            "DIETCODE_SERVE_RETRY_SECS": "0",
        }
        self.server = self.begin("server", "storm_worker.py", "serve", "--no-jobs", "--port", "0")
        said = self.ready(self.server)
        found = re.search(r"http://[^\s,]+", said)
        assert found, said + (self.server.stderr.read() if self.server.stderr else "")
        self.client = Client(found[0])

    def begin(
        self, name: str, job: str, *command: str, mcpu: str = "alpha", **environment: str
    ) -> subprocess.Popen[str]:
        """Start a process; its data folder is called `name`."""
        arguments = (*command, "--data-dir", str(self.folder / name))
        process = subprocess.Popen(
            [sys.executable, SCRIPT, mcpu, "2", job, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment | environment,
        )
        self.begun.append(process)
        return process

    def begin_test(self, folder: Path) -> None:
        """Nobody is announced, and nothing is left to do; data folders are below `folder`."""
        self.folder = folder
        for process in self.begun[1:]:
            process.kill()
            process.communicate()
        del self.begun[1:]
        patiently(self._forget_all)

    def _forget_all(self) -> None:
        """The server, and what a killed process had begun, go on: as they do, lock jobs before slots."""
        open_states = [
            state.value for state in (JobState.QUEUED, JobState.WAITING_FOR_RUNNER, JobState.RUNNING)
        ]
        with self.database.write() as session:
            found = select(JobRow.id).where(JobRow.state.in_(open_states)).order_by(JobRow.id)
            ids = session.scalars(found.with_for_update(key_share=True)).all()
            session.execute(update(JobRow).where(JobRow.id.in_(ids)).values(state=JobState.CANCELLED.value))
            for table in (SlotRow, RunnerRow):
                session.execute(delete(table))

    def workers(self, *names: str, job: str = "storm_worker.py", **given: str) -> list[Any]:
        """Workers that have announced themselves; `given` are their mcpu and environment."""
        begun = [self.begin(name, job, "worker", "--name", name, **given) for name in names]
        for name, process in zip(names, begun, strict=True):
            said = self.ready(process)
            assert f"worker {name} measures" in said, said
        return begun

    def ready(self, process: subprocess.Popen[str]) -> str:
        assert process.stderr is not None
        return process.stderr.readline()

    def submit(self, name: str, **changes: Any) -> str:
        """A job on a workload of its own, which `self.spec` is then."""
        self._number += 1
        dims = {"m": "16*T", "n": 64, "k": 48 + self._number}
        self.spec = spec_data(f"{name}-{self._number}", dims=dims, **changes)
        return self.client.submit(self.spec).id

    def reach(self, job_id: str, state: JobState, timeout_secs: float = 30.0) -> Job:
        found: Job = self.wait(lambda: (job := self.client.job(job_id)).state == state and job, timeout_secs)
        return found

    def wait(self, until: Callable[[], Any], timeout_secs: float = 30.0) -> Any:
        deadline = time.monotonic() + timeout_secs
        while not (found := until()):
            assert time.monotonic() < deadline, [(job.name, job.state) for job in self.client.jobs().jobs]
            time.sleep(0.02)
        return found

    def runners(self) -> set[str]:
        return {runner.name for runner in self.client.runners()}

    def tree(self, process: subprocess.Popen[str]) -> list[psutil.Process]:
        """The process with all its descendants."""
        root = psutil.Process(process.pid)
        return [root, *root.children(recursive=True)]

    def measured_by(self, name: str) -> list[tuple[float, str]]:
        """When measurements began in a worker's data folder, and in which process."""
        path = self.folder / name / "work" / "began"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(at), runner) for at, runner in (line.split() for line in lines)]

    def starts(self, *names: str) -> list[str]:
        """The jobs for which processes were started in these workers' data folders, sorted."""
        paths = [self.folder / name / "work" / "starts" for name in names]
        return sorted(job for path in paths if path.exists() for job in path.read_text().split())

    def end(self, process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
        return process.returncode, said

    def close(self) -> None:
        self.client.close()
        for process in self.begun:
            process.kill()
            process.communicate()
        self.database.dispose()
