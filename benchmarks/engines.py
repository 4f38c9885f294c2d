"""What more machines bring: build throughput with 1, 2 and 4 Ray workers, and which share of a job scales.

python -m benchmarks.engines

Run it where nothing else runs: what other processes disturbed is measured again, or marked. Each worker is a
node of a Ray cluster on this machine, pinned to one core; more workers than cores share them. The share is of
one real tuning job on this machine alone, which is not repeated.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.facts import done_once, write
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.device_kinds import DEVICE_KINDS
from dietcode.measure.disturbance import machine_of, spread_of_readings, undisturbed
from dietcode.measure.local import LocalChildren
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.space import build_space, hardware_seeds
from dietcode.search_space.problem import Problem, problem_from_spec
from dietcode.target.cpu import resolve_target
from dietcode.tuner.tune import make_library
from dietcode.workload.parse import load_spec, spec_from_data
from dietcode.workload.spec import Spec

WORKERS = (1, 2, 4)
_SPEC = Path("examples/bert-dense.yaml")
_NUM_BUILDS = 16
_ROUNDS = 3
_TRIALS = 32
_JOIN_SECS = 60.0


@contextlib.contextmanager
def cluster(num_workers: int) -> Iterator[str]:
    """Address of a cluster with so many pinned workers, a node that measures, and a head."""
    folder = Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))
    os.environ["RAY_TMPDIR"] = str(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    cores = sorted(os.sched_getaffinity(0))
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        _join(nodes, folder, None, "--head", "--address", address, "--builds", "0")
        _join(nodes, folder, None, "--address", address, "--measures")
        for worker in range(num_workers):
            _join(nodes, folder, cores[worker % len(cores)], "--address", address, "--builds", "1")
        yield address
    finally:
        for node in reversed(nodes):
            tree = [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _join(nodes: list[subprocess.Popen[bytes]], folder: Path, core: int | None, *options: str) -> None:
    """Start a node; nodes of one machine that start at once get in each other's way."""
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    path = folder / f"node{len(nodes)}.log"
    with path.open("wb") as log:
        command = [*pinned, sys.executable, "-m", "dietcode", "ray-node", *options]
        nodes.append(subprocess.Popen(command, stdout=log, stderr=log))
    _wait(lambda: "Ray runtime started" in path.read_text())


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _JOIN_SECS
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("the cluster does not start")
        time.sleep(0.2)


def candidates(spec: Spec) -> tuple[Problem, Limits, list[MicroKernel]]:
    """The first micro-kernels of a workload's space."""
    problem, limits = problem_from_spec(spec), Limits.of(resolve_target(spec.target))
    space = build_space(hardware_seeds(limits), limits, 2048, 2304)
    return problem, limits, [candidate.micro_kernel for candidate in space[:_NUM_BUILDS]]


def throughput(children: Children, spec: Spec, warm: int) -> dict[str, Any]:
    """Builds in a second, the best of a few rounds, after each worker has built once."""
    problem, _, kernels = candidates(spec)
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        target = resolve_target(spec.target)
        measuring = MeasuringCpu(children, problem, spec.variables, target, Path(folder))
        requests = [measuring.build_request([kernel], kernel.name) for kernel in kernels]
        list(children.build(requests[:warm]))

        def measure() -> list[float]:
            secs = []
            for _ in range(_ROUNDS):
                started = time.perf_counter()
                results = list(children.build(requests))
                secs.append(time.perf_counter() - started)
                failed = [result.error for result in results if result.error is not None]
                if failed:
                    raise SystemExit(f"a build failed: {failed[0]}")
            return secs

        machine = machine_of(in_children=True)
        watched = undisturbed(measure, lambda secs: spread_of_readings({"builds": secs}), machine)
    return {
        "num_builds": len(requests),
        "secs": watched.value,
        "builds_per_sec": len(requests) / min(watched.value),
        "disturbed": watched.disturbed,
    }


def with_ray(num_workers: int, spec: Spec) -> dict[str, Any]:
    """Throughput with so many workers."""
    from dietcode.measure.ray_cluster import RayCluster

    with cluster(num_workers) as address:
        engine = RayCluster(address)
        try:
            _wait(lambda: bool(engine.slots(DEVICE_KINDS["llvm"])) and engine.num_builders() == num_workers)
            device = engine.resolve(spec.target)
            with engine.children(device, print) as children:
                return {"workers": num_workers} | throughput(children, spec, 2 * num_workers)
        finally:
            engine.close()


def without_ray(num_workers: int, spec: Spec) -> dict[str, Any]:
    """Throughput of child processes of this one."""
    children = LocalChildren(CpuWorker(num_workers), measures=False)
    try:
        return {"workers": num_workers} | throughput(children, spec, 2 * num_workers)
    finally:
        children.close()


class TimedChildren:
    """Children that note how long each kind of work took."""

    def __init__(self, children: LocalChildren) -> None:
        self._children = children
        self.slot = children.slot
        self.seeds = self
        self.secs = {"builds": 0.0, "measurements": 0.0, "metaschedule": 0.0}

    def build(self, requests: Any) -> Any:
        """Timed until the last result."""
        with self._timed("builds"):
            return iter(list(self._children.build(requests)))

    def time(self, *given: Any) -> Any:
        """One timing."""
        with self._timed("measurements"):
            return self._children.time(*given)

    def check(self, *given: Any) -> Any:
        """One check."""
        with self._timed("measurements"):
            return self._children.check(*given)

    def find(self, *given: Any) -> Any:
        """MetaSchedule, its builds included."""
        with self._timed("metaschedule"):
            return self._children.seeds.find(*given)

    def close(self) -> None:
        """End them."""
        self._children.close()

    @contextlib.contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.secs[kind] += time.perf_counter() - started


def share(spec: Spec) -> dict[str, Any]:
    """Seconds of one tuning job from nothing, by kind of work."""
    target = resolve_target(spec.target)
    children = TimedChildren(LocalChildren(CpuWorker(target.num_cores)))
    try:
        result, _, disturbed = done_once(lambda: make_library(spec, children=children, force=True))
    finally:
        children.close()
    parts = children.secs | {"other": result.secs - sum(children.secs.values())}
    return {
        "workload": spec.name,
        "measured": result.measured,
        "cores": target.num_cores,
        "secs": result.secs,
        "parts_secs": parts,
        "share": {kind: secs / result.secs for kind, secs in parts.items()},
        "disturbed": disturbed,
    }


def main() -> None:
    """Measure and write JSON."""
    spec = load_spec(_SPEC)
    with tempfile.TemporaryDirectory(prefix="dietcode-") as cache:
        os.environ["DIETCODE_CACHE"] = cache
        # One token for all clusters: Ray reads it once in a process.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(16))
        short = spec_from_data(spec.to_json() | {"budget": {"trials": _TRIALS, "seconds": 90}})
        results: dict[str, Any] = {"job": share(short)}
        print(results["job"], flush=True)
        results["local"] = [without_ray(num, spec) for num in (1, 2)]
        results["ray"] = []
        for num in WORKERS:
            results["ray"].append(with_ray(num, spec))
            print(results["ray"][-1], flush=True)
    write(Path("benchmarks/results/engines.json"), {"what": "builds of bert-dense's candidates"} | results)


if __name__ == "__main__":
    main()
