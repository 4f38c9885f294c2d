"""The driver's side of a Ray cluster: sends builds and measurements there and collects their results."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError

from dietcode.errors import TuningError
from dietcode.measure import ray_node
from dietcode.measure.child_calls import describe
from dietcode.measure.engine import Device, OnWait
from dietcode.measure.ray_nodes import AUTH_MODE, RayNodes
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CallRequest,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import Progress, SeedRequest, SeedResult, SeedSearch

_POLL_SECS = 1.0
_QUIET_SECS = 15.0
_RETRIES = 2  # of a build whose machine was lost
_START_SECS = 60.0  # for the measuring process on the node to start, besides what a call may take
_CLOSE_SECS = 3.0
Result = TypeVar("Result")
_STARTS = 3  # machines that may be lost one after the other while a job waits for one


class _LostError(Exception):
    """The machine that measured is gone, or does not answer."""


class RayChildren:
    """`dietcode.measure.children.Children` on a Ray cluster.

    A build whose machine is lost is built elsewhere. Where the machine that measures is lost, the call fails,
    and the next one waits for another like it.

    Attributes
    ----------
    slot : str
        The machine that is held.
    """

    def __init__(self, cluster: RayNodes, device: Device, on_wait: OnWait) -> None:
        self._cluster, self._device, self._on_wait = cluster, device, on_wait
        self._build = ray.remote(ray_node.build).options(
            num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD"
        )
        self._actor: Any = None
        self._sent: set[str] = set()
        self._pending: list[Any] = []
        self.slot = ""
        self.seeds: SeedSearch = RaySeedSearch(self)
        self.acquire()

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        """As `Children.build`; the code is at the requests' paths on this machine."""
        if not self._cluster.num_builders():
            yield from self._build_here(requests)
            return
        pending = [self._build.remote(self._device.worker, request) for request in requests]
        self._pending = pending
        try:
            for request in requests:
                yield from self._collect(request, pending[0])
                pending.pop(0)
        finally:
            _cancel(pending)

    def _collect(self, request: BuildRequest, task: Any) -> Iterator[BuildResult]:
        """Wait for a build; where no machine is left that builds, the one that measures does it."""
        while not ray.wait([task], timeout=_POLL_SECS)[0]:
            if not self._cluster.num_builders():
                ray.cancel(task, force=True)
                yield from self._build_here([request])
                return
        try:
            yield _written(request, ray.get(task))
        except RayError as error:
            lost = f"the build was lost with its machine, {_RETRIES + 1} times: {describe(error)}"
            yield BuildResult.failed(lost)

    def _build_here(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        built: list[ray_node.Built]
        try:
            built = self.call("build", list(requests), timeout_secs=None)
        except _LostError as error:
            built = [(BuildResult.failed(str(error)), b"")] * len(requests)
        for request, one in zip(requests, built, strict=True):
            yield _written(request, one)

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        """As `Children.time`; waits for another machine where the last one was lost."""
        return self._run("time", request, timeout_secs, TimeResult.failed)

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        """As `Children.check`; waits for another machine where the last one was lost."""
        return self._run("check", request, timeout_secs, CheckResult.failed)

    def _run(
        self,
        method: str,
        request: CallRequest,
        timeout_secs: float,
        failed: Callable[[str], Result],
    ) -> Result:
        self.acquire()
        code = Path(request.path).read_bytes()
        digest = hashlib.sha256(code).hexdigest()
        sent = None if digest in self._sent else code
        try:
            result: Result = self.call(
                method, request, digest, sent, timeout_secs, timeout_secs=timeout_secs + _START_SECS
            )
        except _LostError as error:
            return failed(str(error))
        self._sent.add(digest)
        return result

    def call(self, method: str, *arguments: Any, timeout_secs: float | None) -> Any:
        """Call a method of the machine that measures; after an error of Ray the machine is released."""
        task = getattr(self._actor, method).remote(*arguments)
        try:
            return ray.get(task, timeout=timeout_secs)
        except (RayError, GetTimeoutError) as error:
            self._release()
            raise _LostError(f"the machine that measures was lost: {describe(error)}") from error

    def acquire(self) -> None:
        """Take the slot of a machine with the device, if none is held.

        Raises
        ------
        TuningError
            There is no such machine, or it cannot be used.
        """
        lost = ""
        for _ in range(_STARTS):
            if self._actor is not None:
                return
            node = ray.remote(ray_node.MeasuringNode).options(
                num_cpus=0, resources={self._device.slot: 1}, max_restarts=0, max_task_retries=0
            )
            self._actor = node.remote(self._device.worker)
            greeting = self._actor.hello.remote()
            self._wait_for(greeting)
            try:
                self._check(ray.get(greeting))
            except RayError as error:
                self._release()
                lost = describe(error)
        if self._actor is None:
            raise TuningError(f"no process can be started on {self._device.record['name']}: {lost}")

    def _wait_for(self, greeting: Any) -> None:
        """Wait as long as others measure on the device, but only a while where no machine has it."""
        started = seen = time.monotonic()
        said = False
        while not ray.wait([greeting], timeout=_POLL_SECS)[0]:
            now = time.monotonic()
            if self._device.slot in self._cluster.resources():
                seen = now
            if now - seen > self._cluster.wait_secs:
                self._release()
                raise TuningError(
                    f"no machine of the Ray cluster at {self._cluster.address} has had {self._name} for "
                    f"{self._cluster.wait_secs:.0f} s; start one with `dietcode ray-node --measures`"
                )
            if not said and now - started > _QUIET_SECS:
                self._on_wait(
                    f"waiting for {self._name} of the Ray cluster: another tuning run may work on it"
                )
                said = True

    @property
    def _name(self) -> str:
        return f"{self._device.record['name']}, {self._device.target.label}"

    def _check(self, hello: Mapping[str, Any]) -> None:
        """Refuse a machine that has other versions than this one, or asks for no token.

        Raises
        ------
        TuningError
            The message says which.
        """
        if hello["versions"] != ray_node.versions():
            self._release()
            here = ray_node.versions()
            raise TuningError(
                f"{hello['host']} has {hello['versions']}, this machine {here}; install the same"
            )
        if not hello["secured"]:
            self._release()
            raise TuningError(f"{hello['host']} runs without a token; set {AUTH_MODE}=token on every machine")
        self.slot = f"ray/{hello['host']}"

    def _release(self) -> None:
        """Release the slot; whatever runs there ends."""
        actor, self._actor = self._actor, None
        self._sent.clear()
        if actor is not None:
            ray.kill(actor)

    def close(self) -> None:
        """End all that this job runs on the cluster."""
        _cancel(self._pending)
        if self._actor is not None:
            with contextlib.suppress(RayError, GetTimeoutError):  # it is ended all the same
                ray.get(self._actor.close.remote(), timeout=_CLOSE_SECS)
            self._release()


class RaySeedSearch:
    """`SeedSearch` on the machine that measures; the folder here holds a copy of its database."""

    def __init__(self, children: RayChildren) -> None:
        self._children = children

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """As `SeedSearch.find`."""
        work_dir.mkdir(parents=True, exist_ok=True)
        self._children.acquire()
        try:
            database = ray_node.read_database(work_dir)
            self._children.call("start_seed", request, database, timeout_secs=_START_SECS + request.max_secs)
            while True:
                state: ray_node.SeedState = self._children.call("seed_state", timeout_secs=_START_SECS)
                for name, data in state.database.items():
                    (work_dir / name).write_bytes(data)
                progress(*state.progress)
                if state.result is not None:
                    return state.result
                time.sleep(_POLL_SECS)
        except _LostError as error:
            return SeedResult(None, f"MetaSchedule did not end: {error}")


def _cancel(pending: Sequence[Any]) -> None:
    """Cancel builds that nobody waits for."""
    for task in pending:
        ray.cancel(task, force=True)


def _written(request: BuildRequest, built: ray_node.Built) -> BuildResult:
    """Write built code to the path that the driver asked for."""
    result, code = built
    if result.path is None:
        return result
    Path(request.path).write_bytes(code)
    return replace(result, path=request.path)
