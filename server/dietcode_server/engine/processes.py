"""The local engine: a child process for each job on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dietcode.bench.confined import Compare
from dietcode.confinement import kept_environment
from dietcode.errors import DietCodeError
from dietcode.lean import python_command, without_torch
from dietcode.measure.engine_spec import EngineSpec
from dietcode_server.engine.runner import end_tree, runner_name
from dietcode_server.limits import SizeLimits
from dietcode_server.logs import Format
from dietcode_server.store.leases import LEASE_SECS


@dataclass
class WorkerProcess:
    """A started worker.

    Attributes
    ----------
    runner : str
        The name under which it claims its job.
    has_claimed : bool
        Whether it was seen to hold its job.
    let_go_at : float or None
        When it was first seen to hold it no longer, by `time.monotonic`.
    """

    job_id: str
    runner: str
    process: subprocess.Popen[bytes]
    has_claimed: bool = False
    let_go_at: float | None = None

    def exit_status(self) -> int | None:
        """None while it runs; a signal's number, negated, where one ended it."""
        return self.process.poll()

    def end(self) -> None:
        """Kill it with all its descendants."""
        end_tree(self.process.pid)
        self.process.wait()


@dataclass(frozen=True)
class LocalEngine:
    """Starts workers on this machine.

    Attributes
    ----------
    work_root, log_dir : Path
        Folders for MetaSchedule's files and for what workers print.
    command : tuple of str
        What a worker process runs.
    lease_secs : float
        How long a worker holds its job without a heartbeat, in seconds.
    slot : str or None
        Where its jobs measure, one at a time; None where a worker finds that out itself.
    spec : callable
        Where its jobs build and measure, and what is known of it by now.
    compare : str
        What its libraries are measured beside, as `dietcode_server.settings.Settings.compare`.
    limits : SizeLimits or None
        What the parts of a model are compared with.
    """

    database_url: str
    work_root: Path
    log_dir: Path
    heartbeat_secs: float
    log_format: Format = "text"
    command: tuple[str, ...] = tuple(python_command("dietcode_server.engine.worker"))
    lease_secs: float = LEASE_SECS
    slot: str | None = field(default_factory=socket.gethostname)
    spec: Callable[[], EngineSpec] = EngineSpec
    compare: Compare = "none"
    limits: SizeLimits | None = None

    def start(self, job_id: str) -> WorkerProcess:
        """Start a worker for a queued job, which it claims itself.

        Raises
        ------
        DietCodeError
            No process can be started.
        """
        spec = self.spec()
        request = {
            "parent_pid": os.getpid(),
            "database_url": self.database_url,
            "job": job_id,
            "work_root": str(self.work_root),
            "heartbeat_secs": self.heartbeat_secs,
            "log_format": self.log_format,
            "lease_secs": self.lease_secs,
            "slot": self.slot,
            "engine": spec.to_json(),
            "compare": self.compare,
            "limits": None if self.limits is None else self.limits.to_json(),
        }
        try:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            self.work_root.mkdir(parents=True, exist_ok=True)
            with (self.log_dir / f"{job_id}.log").open("ab") as log:
                process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=without_torch(kept_environment(os.environ) | spec.environment(os.environ)),
                    start_new_session=True,
                )
            assert process.stdin is not None
            runner = runner_name(process.pid)
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
        except OSError as error:
            raise DietCodeError(f"no worker can be started: {error.strerror or error}") from error
        return WorkerProcess(job_id, runner, process)
