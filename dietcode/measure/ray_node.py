"""What runs on the machines of a Ray cluster: builds as tasks, an actor that holds a machine to measure on.

Both do their work in the confined child processes of `dietcode.measure.local`. Built code travels as bytes:
paths mean something on one machine only.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from dietcode._version import __version__
from dietcode.measure.child_calls import describe
from dietcode.measure.children import Worker
from dietcode.measure.local import LocalChildren
from dietcode.measure.ray_nodes import AUTH_MODE
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CallRequest,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import SeedRequest, SeedResult, SeedSearch

_BUILDERS: dict[Worker, LocalChildren] = {}

Built = tuple[BuildResult, bytes]  # and the code


def build(worker: Worker, request: BuildRequest) -> Built:
    """Build in a child process, which stays for the next task on this worker of Ray; returns the node too."""
    import ray

    if not _BUILDERS:
        own_folder()
    if worker not in _BUILDERS:
        _BUILDERS[worker] = LocalChildren(worker, 1, measures=False)
    result, code = build_all(_BUILDERS[worker], [request])[0]
    return replace(result, node=ray.get_runtime_context().get_node_id()), code


def build_all(children: LocalChildren, requests: Sequence[BuildRequest]) -> list[Built]:
    """Build side by side; returns each result with its code."""
    built: list[Built] = []
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        moved = [
            replace(request, path=str(Path(folder) / f"{i}{Path(request.path).suffix}"))
            for i, request in enumerate(requests)
        ]
        for result in children.build(moved):
            built.append((result, b"" if result.path is None else Path(result.path).read_bytes()))
    return built


class MeasuringNode:
    """Holds a machine for one job: an actor that takes the machine's slot, and gives it back by ending.

    It is not detached: Ray ends it with the job's driver, and its child processes end with it.
    """

    def __init__(self, worker: Worker) -> None:
        self._folder = own_folder()
        self._children, self._seeds = LocalChildren(worker), worker.seeds
        self._seed_run: SeedRun | None = None

    def hello(self) -> dict[str, Any]:
        """Return versions, the machine's name, and whether it asks callers for a token."""
        return {
            "versions": versions(),
            "host": os.uname().nodename,
            "secured": os.environ.get(AUTH_MODE, "").lower() == "token",
        }

    def build(self, requests: Sequence[BuildRequest]) -> list[Built]:
        """Build where the cluster has no other machine for it; nothing is measured meanwhile."""
        return build_all(self._children, requests)

    def time(self, request: TimeRequest, digest: str, code: bytes | None, timeout_secs: float) -> TimeResult:
        """Time some code.

        Parameters
        ----------
        digest : str
            Of the code.
        code : bytes or None
            None where it came earlier.
        timeout_secs : float
            As `Children.time` has it.
        """
        return self._children.time(replace(request, path=self._path_of(request, digest, code)), timeout_secs)

    def check(
        self, request: CheckRequest, digest: str, code: bytes | None, timeout_secs: float
    ) -> CheckResult:
        """Check some code; the parameters are those of `time`.

        Parameters
        ----------
        digest, code, timeout_secs
            As `time` has them.
        """
        return self._children.check(replace(request, path=self._path_of(request, digest, code)), timeout_secs)

    def _path_of(self, request: CallRequest, digest: str, code: bytes | None) -> str:
        path = self._folder / f"{digest}{Path(request.path).suffix}"
        if code is not None and not path.exists():
            path.write_bytes(code)
        return str(path)

    def start_seed(self, request: SeedRequest, database: Mapping[str, bytes]) -> None:
        """Start MetaSchedule from a database of earlier trials."""
        folder = self._folder / "seed"
        folder.mkdir(exist_ok=True)
        for name, data in database.items():
            (folder / name).write_bytes(data)
        self._seed_run = SeedRun(self._seeds, request, folder)

    def seed_state(self) -> SeedState:
        """Return how far it is."""
        assert self._seed_run is not None
        return self._seed_run.state()

    def close(self) -> None:
        """End the children and delete what was sent."""
        self._children.close()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class SeedState:
    """Progress of a search for a seed.

    Attributes
    ----------
    progress : tuple of (int, float or None)
        Finished trials, and the best GFLOP/s.
    database : dict of str to bytes
        MetaSchedule's files, by name.
    result : SeedResult or None
        None while it runs.
    """

    progress: tuple[int, float | None]
    database: dict[str, bytes]
    result: SeedResult | None


class SeedRun:
    """A search for a seed, run by a thread."""

    def __init__(self, seeds: SeedSearch, request: SeedRequest, folder: Path) -> None:
        self._seeds, self._request, self._folder = seeds, request, folder
        self._progress: tuple[int, float | None] = (0, None)
        self._result: SeedResult | None = None
        threading.Thread(target=self._run, name="seed", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._seeds.find(self._request, self._folder, self._note)
        except Exception as error:
            self._result = SeedResult(None, describe(error))

    def _note(self, done: int, gflops: float | None) -> None:
        self._progress = (done, gflops)

    def state(self) -> SeedState:
        """Return how far it is."""
        result = self._result  # before the database is read, which is complete then
        return SeedState(self._progress, read_database(self._folder), result)


def read_database(folder: Path) -> dict[str, bytes]:
    """Return MetaSchedule's files in a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("database_*.json"))}


def versions() -> dict[str, str]:
    """Return the versions that every machine of a job must share: code and requests travel between them."""
    return {"dietcode": __version__, "apache-tvm": importlib.metadata.version("apache-tvm")}


def own_folder() -> Path:
    """Make a folder for this process's temporary files; those of processes that were killed are deleted.

    The cluster's token leaves the environment, which child processes inherit.
    """
    os.environ.pop("RAY_AUTH_TOKEN", None)
    root = Path(tempfile.gettempdir()) / f"dietcode-ray-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    for folder in root.iterdir():
        if not (folder.name.isdigit() and psutil.pid_exists(int(folder.name))):
            shutil.rmtree(folder, ignore_errors=True)
    own = root / str(os.getpid())
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(mode=0o700)
    os.environ["TMPDIR"] = tempfile.tempdir = str(own)
    return own
