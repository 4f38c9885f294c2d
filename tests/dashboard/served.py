"""A real server for a browser, and what is tuned on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from small_libraries import ROOT, spec_data

from dietcode.client import Client
from dietcode.protocol import FINAL_STATES, Job, JobState

# The trials end a job, not the seconds, however busy the machine.
BUDGET = {"trials": 8, "seconds": 400}
# Several micro-kernels are worth it where bytes cost nothing.
ONE_VARIABLE = spec_data(
    "one-variable",
    shape_vars={"T": {"min": 1, "max": 40}},
    dims={"m": "T", "n": 64, "k": 64},
    budget=BUDGET,
    objective={"binary_size": 0.0},
)
TWO_VARIABLES = spec_data(
    "two-variables",
    op={"einsum": "bmk,bkn->bmn", "epilogue": []},
    tensors={"P": {"dims": "bmk", "dtype": "float32"}, "V": {"dims": "bkn", "dtype": "float32"}},
    shape_vars={"B": {"min": 1, "max": 6}, "T": {"min": 1, "max": 24}},
    dims={"b": "B", "m": "T", "n": 32, "k": "T"},
    budget=BUDGET,
    objective={"binary_size": 0.0},
)


_FEWEST, _AGAIN = 2, 2


class Served:
    """``dietcode serve`` on a free loopback port and a folder of its own.

    Attributes
    ----------
    url : str
        Its origin, without a slash at the end.
    client : Client
        For what a test prepares without the browser.
    tuned : dict of str to Job
        What `tune` has made, by the names of the specs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "server.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "dietcode",
                    "serve",
                    "--port",
                    "0",
                    "--data-dir",
                    str(folder / "data"),
                ],
                stderr=log,
                cwd=ROOT,
                env=os.environ | {"DIETCODE_CACHE": str(folder / "cache")},
            )
        deadline = time.monotonic() + 60
        while "serving http" not in self.said():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.05)
        self.url = self.said().split("serving ")[1].split(",")[0].rstrip("/")
        self.client = Client(self.url)
        self.tuned: dict[str, Job] = {}

    def said(self) -> str:
        """What the server logged."""
        return self._log.read_text()

    def submit(self, spec: dict[str, Any], **options: Any) -> Job:
        """A job."""
        return self.client.submit(spec, **options)

    def reach(self, job: Job, state: JobState = JobState.SUCCEEDED, timeout_secs: float = 240.0) -> Job:
        """Wait until a job is in a state."""
        deadline = time.monotonic() + timeout_secs
        while (now := self.client.job(job.id)).state != state:
            assert now.state not in FINAL_STATES, now
            assert time.monotonic() < deadline, now
            time.sleep(0.1)
        return now

    def tune(self, *specs: dict[str, Any]) -> None:
        """Have libraries made for some specs, each with several micro-kernels.

        What is chosen goes by what was measured: where one micro-kernel is the best for all, that version is
        yanked and the spec measured once more, so that a name has one version that is offered.
        """
        jobs = [self.submit(spec) for spec in specs]
        for spec, submitted in zip(specs, jobs, strict=True):
            job = self.reach(submitted)
            for _ in range(_AGAIN):
                if self.has_several(job):
                    break
                assert job.library is not None
                self.client.yank(job.library.name, job.library.version)
                job = self.reach(self.submit(spec, force=True))
            assert self.has_several(job), (
                f"{spec['name']}: one micro-kernel is the best for all, time and again"
            )
            self.tuned[spec["name"]] = job

    def has_several(self, job: Job) -> bool:
        """Whether a job's library has several micro-kernels, as the charts need it."""
        assert job.library is not None
        return self.client.library(job.library.name).num_micro_kernels >= _FEWEST

    def close(self) -> None:
        """Stop it as an operator does."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.said()
