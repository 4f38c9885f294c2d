"""The driver's side of a Ray cluster: sends builds and measurements there, and sees what became of them."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from dietcode.errors import TuningError
from dietcode.measure import ray_node
from dietcode.measure.engine import Device, Say
from dietcode.measure.local import describe
from dietcode.measure.measurer import Progress
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import NoTrialError, Seed
from dietcode.target.cpu import CpuTarget

if TYPE_CHECKING:
    from dietcode.measure.ray_cluster import RayCluster

_POLL_SECS = 1.0
_SAY_SECS = 15.0
_RETRIES = 2  # of a build whose machine was lost
_START_SECS = 60.0  # for the measuring process on the node to start, besides what a call may take
_CLOSE_SECS = 3.0
_STARTS = 3  # machines that may be lost one after the other while a job waits for one


class _LostError(Exception):
    """The machine that measured is gone, or does not answer."""


class RayChildren:
    """`dietcode.measure.measurer.Children` on a Ray cluster.

    A build whose machine is lost is built elsewhere. Where the machine that measures is lost, the call says
    so, and the next one waits for another like it.

    Attributes
    ----------
    slot : str
        The machine that is held.
    """

    def __init__(self, cluster: RayCluster, device: Device, say: Say) -> None:
        self._cluster, self._device, self._say = cluster, device, say
        self._build = ray.remote(ray_node.build).options(
            num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD"
        )
        self._actor: Any = None
        self._sent: set[str] = set()
        self._pending: list[Any] = []
        self.slot = ""
        self._acquire()

    def map_builds(self, requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any] | str]:
        """Results in the order of `requests`; the code is at their paths on this machine."""
        if not self._cluster.num_builders():
            yield from self._build_here(requests)
            return
        self._pending = [self._build.remote(request) for request in requests]
        for request, task in zip(requests, list(self._pending), strict=True):
            yield from self._collect(request, task)
            self._pending.remove(task)

    def _collect(self, request: dict[str, Any], task: Any) -> Iterator[dict[str, Any] | str]:
        """Wait for a build; where no machine is left that builds, the one that measures does it."""
        while not ray.wait([task], timeout=_POLL_SECS)[0]:
            if not self._cluster.num_builders():
                ray.cancel(task, force=True)
                yield from self._build_here([request])
                return
        try:
            yield _place(request, ray.get(task))
        except RayError as error:
            yield f"the build was lost with its machine, {_RETRIES + 1} times: {describe(error)}"

    def _build_here(self, requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any] | str]:
        try:
            built = self._call("build", list(requests), timeout_secs=None)
        except _LostError as error:
            built = [(str(error), b"")] * len(requests)
        for request, outcome in zip(requests, built, strict=True):
            yield _place(request, outcome)

    def run(self, function: str, request: dict[str, Any], timeout_secs: float) -> dict[str, Any] | str:
        """Call `worker.<function>` on the machine that measures; waits for one where it was lost.

        Raises
        ------
        TuningError
            None came back in time.
        """
        self._acquire()
        code = Path(request["path"]).read_bytes()
        digest = hashlib.sha256(code).hexdigest()
        sent = None if digest in self._sent else code
        try:
            outcome: dict[str, Any] | str = self._call(
                "run", function, request, digest, sent, timeout_secs, timeout_secs=timeout_secs + _START_SECS
            )
        except _LostError as error:
            return str(error)
        self._sent.add(digest)
        return outcome

    def run_seed(
        self,
        problem: Problem,
        extents: Mapping[str, int],
        target: CpuTarget,
        work_dir: Path,
        num_trials: int,
        max_secs: float,
        progress: Progress,
    ) -> tuple[Seed, dict[str, Any]]:
        """MetaSchedule on the machine that measures; `work_dir` here has a copy of its database.

        Raises
        ------
        NoTrialError
            It finished no trial, or its machine was lost.
        """
        work_dir.mkdir(parents=True, exist_ok=True)
        request = {
            "problem": problem.to_json(),
            "extents": dict(extents),
            "target": target.to_json(),
            "num_trials": num_trials,
            "max_secs": max_secs,
        }
        self._acquire()
        try:
            self._call(
                "start_seed", request, ray_node.read_database(work_dir), timeout_secs=_START_SECS + max_secs
            )
            while True:
                state = self._call("seed_state", timeout_secs=_START_SECS)
                for name, data in state["database"].items():
                    (work_dir / name).write_bytes(data)
                progress(state["done"], state["gflops"])
                if "result" in state:
                    found: tuple[Seed, dict[str, Any]] = state["result"]
                    return found
                if "error" in state:
                    raise NoTrialError(state["error"])
                time.sleep(_POLL_SECS)
        except _LostError as error:
            raise NoTrialError(f"MetaSchedule did not end: {error}") from error

    def _call(self, method: str, *arguments: Any, timeout_secs: float | None) -> Any:
        """Call the machine that measures; after an error of Ray's it is given up."""
        task = getattr(self._actor, method).remote(*arguments)
        try:
            return ray.get(task, timeout=timeout_secs)
        except (RayError, GetTimeoutError) as error:
            self._give_up()
            raise _LostError(f"the machine that measures was lost: {describe(error)}") from error

    def _acquire(self) -> None:
        """Take the slot of a machine of the device, if none is held.

        Raises
        ------
        TuningError
            None is there, or it cannot be used.
        """
        lost = ""
        for _ in range(_STARTS):
            if self._actor is not None:
                return
            node = ray.remote(ray_node.MeasuringNode).options(
                num_cpus=0, resources={self._device.place: 1}, max_restarts=0, max_task_retries=0
            )
            self._actor = node.remote(self._device.target.num_cores)
            greeting = self._actor.hello.remote()
            self._wait_for(greeting)
            try:
                self._check(ray.get(greeting))
            except RayError as error:
                self._give_up()
                lost = describe(error)
        if self._actor is None:
            raise TuningError(f"no process can be started on {self._device.record['name']}: {lost}")

    def _wait_for(self, greeting: Any) -> None:
        """Wait for ever where others measure on the device; for a while where no machine has it."""
        started = seen = time.monotonic()
        said = False
        while not ray.wait([greeting], timeout=_POLL_SECS)[0]:
            now = time.monotonic()
            if self._device.place in self._cluster.places():
                seen = now
            if now - seen > self._cluster.wait_secs:
                self._give_up()
                raise TuningError(
                    f"no machine of the Ray cluster at {self._cluster.address} has had {self._name} for "
                    f"{self._cluster.wait_secs:.0f} s; start one with `dietcode ray-node --measures`"
                )
            if not said and now - started > _SAY_SECS:
                self._say(f"waiting for {self._name} of the Ray cluster: another tuning run may work on it")
                said = True

    @property
    def _name(self) -> str:
        return f"{self._device.record['name']} ({self._device.target.num_cores} cores)"

    def _check(self, hello: Mapping[str, Any]) -> None:
        """See that the machine is like this one, and asks for a token.

        Raises
        ------
        TuningError
            It is not.
        """
        if hello["versions"] != ray_node.versions():
            self._give_up()
            here = ray_node.versions()
            raise TuningError(
                f"{hello['host']} has {hello['versions']}, this machine {here}; install the same"
            )
        if not hello["secured"]:
            self._give_up()
            raise TuningError(
                f"{hello['host']} runs without a token; set {ray_node.AUTH_MODE}=token on every machine"
            )
        self.slot = f"ray/{hello['host']}"

    def _give_up(self) -> None:
        """Let the slot go; whatever is at work there ends."""
        actor, self._actor = self._actor, None
        self._sent.clear()
        if actor is not None:
            ray.kill(actor)

    def close(self) -> None:
        """End everything of this job on the cluster."""
        for task in self._pending:
            ray.cancel(task, force=True)
        self._pending = []
        if self._actor is not None:
            with contextlib.suppress(RayError, GetTimeoutError):  # it is ended all the same
                ray.get(self._actor.close.remote(), timeout=_CLOSE_SECS)
            self._give_up()


def _place(request: Mapping[str, Any], built: ray_node.Built) -> dict[str, Any] | str:
    """Write built code to where the driver wants it."""
    outcome, code = built
    if isinstance(outcome, str):
        return outcome
    Path(request["path"]).write_bytes(code)
    return outcome | {"path": request["path"]}
