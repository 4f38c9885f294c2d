"""What runs on the machines of a Ray cluster: builds as tasks, an actor that holds a machine to measure on.

Both do their work in the confined child processes of `dietcode.measure.local`. Built code travels as bytes:
paths mean something on one machine only.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from dietcode._version import __version__
from dietcode.errors import DietCodeError
from dietcode.measure.local import LocalChildren, describe
from dietcode.search_space.cpu.seed import run_seed
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget, Host

AUTH_MODE = "RAY_AUTH_MODE"
_PLACE = "dietcode-measures:"
_BUILDERS: list[LocalChildren] = []

Built = tuple[dict[str, Any] | str, bytes]  # an outcome, and the code


def place_of(host: Host) -> str:
    """The resource of which a machine that measures has one: its slot.

    The name holds the description of the machine, so that whoever sees the cluster's resources can resolve a
    target for it without disturbing what it measures.
    """
    text = json.dumps(host.to_json(), sort_keys=True, separators=(",", ":"))
    return _PLACE + base64.urlsafe_b64encode(text.encode()).decode()


def host_of(place: str) -> Host | None:
    """The inverse of `place_of`; None for any other resource."""
    if not place.startswith(_PLACE):
        return None
    try:
        return Host.from_json(json.loads(base64.urlsafe_b64decode(place.removeprefix(_PLACE))))
    except (ValueError, TypeError):  # a node of another version
        return None


def build(request: dict[str, Any]) -> Built:
    """Build in a child process, which stays for the next task on this worker of Ray; says on which node."""
    import ray

    if not _BUILDERS:
        own_folder()
        _BUILDERS.append(LocalChildren(1, 1, measures=False))
    outcome, code = build_all(_BUILDERS[0], [request])[0]
    if not isinstance(outcome, str):
        outcome["node"] = ray.get_runtime_context().get_node_id()
    return outcome, code


def build_all(children: LocalChildren, requests: Sequence[dict[str, Any]]) -> list[Built]:
    """Build side by side; the code of each beside its outcome."""
    built: list[Built] = []
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        moved = [request | {"path": str(Path(folder) / f"{i}.so")} for i, request in enumerate(requests)]
        for outcome in children.map_builds(moved):
            built.append((outcome, b"" if isinstance(outcome, str) else Path(outcome["path"]).read_bytes()))
    return built


class MeasuringNode:
    """Holds a machine for one job: an actor that takes the machine's slot, and gives it back by ending.

    It is not detached: Ray ends it with the job's driver, and its child processes end with it.
    """

    def __init__(self, num_cores: int) -> None:
        self._folder = own_folder()
        self._children = LocalChildren(num_cores, num_cores)
        self._seeding: Seeding | None = None

    def hello(self) -> dict[str, Any]:
        """Versions, the machine's name, and whether it asks callers for a token."""
        return {
            "versions": versions(),
            "host": os.uname().nodename,
            "secured": os.environ.get(AUTH_MODE, "").lower() == "token",
        }

    def build(self, requests: Sequence[dict[str, Any]]) -> list[Built]:
        """Build where the cluster has no machine for it; nothing is measured meanwhile."""
        return build_all(self._children, requests)

    def run(
        self, function: str, request: dict[str, Any], digest: str, code: bytes | None, timeout_secs: float
    ) -> dict[str, Any] | str:
        """Call a function of `dietcode.measure.worker` on a library: `code`, or one that came earlier."""
        path = self._folder / f"{digest}.so"
        if code is not None and not path.exists():
            path.write_bytes(code)
        return self._children.run(function, request | {"path": str(path)}, timeout_secs)

    def start_seed(self, request: Mapping[str, Any], database: Mapping[str, bytes]) -> None:
        """Begin MetaSchedule, from a database of earlier trials."""
        folder = self._folder / "seed"
        folder.mkdir()
        for name, data in database.items():
            (folder / name).write_bytes(data)
        self._seeding = Seeding(request, folder)

    def seed_state(self) -> dict[str, Any]:
        """How far it is: ``done``, ``gflops``, ``database``; ``result`` or ``error`` where it has ended."""
        assert self._seeding is not None
        return self._seeding.state()

    def close(self) -> None:
        """End the children and delete what was sent."""
        self._children.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Seeding:
    """MetaSchedule in a process of its own, watched by a thread that lives as long."""

    def __init__(self, request: Mapping[str, Any], folder: Path) -> None:
        self._request, self._folder = request, folder
        self._progress: tuple[int, float | None] = (0, None)
        self._ended: dict[str, Any] = {}
        threading.Thread(target=self._run, name="seed", daemon=True).start()

    def _run(self) -> None:
        request = self._request
        try:
            found = run_seed(
                Problem.from_json(request["problem"]),
                request["extents"],
                CpuTarget.from_json(request["target"]),
                self._folder,
                request["num_trials"],
                request["max_secs"],
                self._note,
            )
            self._ended = {"result": found}
        except DietCodeError as error:
            self._ended = {"error": str(error)}
        except Exception as error:
            self._ended = {"error": describe(error)}

    def _note(self, done: int, gflops: float | None) -> None:
        self._progress = (done, gflops)

    def state(self) -> dict[str, Any]:
        """As `MeasuringNode.seed_state` has it."""
        ended = dict(self._ended)  # before the database is read, which is complete then
        done, gflops = self._progress
        return {"done": done, "gflops": gflops, "database": read_database(self._folder)} | ended


def read_database(folder: Path) -> dict[str, bytes]:
    """MetaSchedule's files in a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("database_*.json"))}


def versions() -> dict[str, str]:
    """What must be the same on every machine of a job: code and requests travel between them."""
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
