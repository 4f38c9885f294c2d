"""Every implementation of `Children`, opened, with candidates that are right, and wrong in all ways."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from child_processes import is_child
from needs import of_extra

from benchmarks.fake_children import FakeChildren, Fault
from dietcode.measure.calibration import reference_problem
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuRecipe
from dietcode.measure.device_kinds import DEVICE_KINDS
from dietcode.measure.engine import Device
from dietcode.measure.gpu import find_gpu
from dietcode.measure.gpu_worker import CudaRecipe, LaunchedKernel
from dietcode.measure.local import LocalMachine
from dietcode.measure.requests import BuildRequest, CheckRequest, TimeRequest
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget, Host
from dietcode.target.cuda import CudaTarget
from dietcode.workload.target_spec import TargetSpec

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("engines", "library", "search_space"))
from made_libraries import CRASH, HANG, c_library

BROKEN = ("wrong", "crashes", "hangs")
_POINTS = ({"m": 5, "n": 70, "k": 2048}, {"m": 16, "n": 70, "k": 2048})
_GPU_TILES = {"right": CudaMicroKernel(8, 16, 2, 2, 4, splits=3), "other": CudaMicroKernel(8, 32, 4, 2, 8)}


@dataclass
class Case:
    """One implementation, open.

    Attributes
    ----------
    build : dict of str to BuildRequest
        right, other (right too) and fails.
    broken : dict of str to path
        Files of code, by `BROKEN`.
    call : callable
        How the code is called, by the names of both.
    roots : list of int
        Processes whose descendants are the children; empty for none.
    others : list of int
        Processes below those whose descendants are no children: the device.
    stage : 'check' or 'time'
        Where broken code runs: the emulated driver computes nothing of what it times.
    """

    children: Children
    problem: Problem
    points: tuple[dict[str, int], ...]
    build: dict[str, BuildRequest]
    broken: dict[str, str]
    call: Callable[[str], Any]
    roots: list[int]
    others: list[int] = field(default_factory=list)
    stage: str = "time"
    good_secs: float = 60.0

    def time(self, name: str, path: str, timeout_secs: float | None = None) -> Any:
        request = TimeRequest(self.problem, path, self.call(name), self.points, min_secs=1e-3, repeats=3)
        return self.children.time(request, timeout_secs or self.good_secs)

    def check(self, name: str, path: str, timeout_secs: float | None = None) -> Any:
        request = CheckRequest(self.problem, path, self.call(name), self.points)
        return self.children.check(request, timeout_secs or self.good_secs)

    def run_broken(self, name: str, timeout_secs: float | None = None) -> Any:
        """The result of the stage that runs it."""
        return getattr(self, self.stage)(name, self.broken[name], timeout_secs)

    def processes(self) -> list[psutil.Process]:
        """Children that run now."""
        tree, device = _descendants(self.roots), _descendants(self.others)
        return [p for p in tree if p not in device and is_child(p)]


def _descendants(roots: list[int]) -> list[psutil.Process]:
    return [process for root in roots for process in psutil.Process(root).children(recursive=True)]


def _cpu_builds(problem: Problem, target: CpuTarget, folder: Path) -> dict[str, BuildRequest]:
    limits = Limits.of(target)
    tiles = {name: (MicroKernel(rows, limits.lanes),) for name, rows in (("right", 4), ("other", 2))}
    return {
        name: BuildRequest(
            str(folder / f"{name}.so"), CpuRecipe(problem, tiles.get(name, ()), 0, (), limits, target)
        )
        for name in ("right", "other", "fails")
    }


@contextmanager
def _on_cpu(
    folder: Path,
    device: Device,
    open_children: Callable[[], AbstractContextManager[Children]],
    roots: Sequence[int],
    **options: Any,
) -> Iterator[Case]:
    problem = replace(reference_problem(), column_operand_constant=False)
    target = device.target
    assert isinstance(target, CpuTarget)
    bodies = dict(zip(BROKEN, ("", CRASH, HANG), strict=True))
    broken = {name: str(c_library(folder, name, body)) for name, body in bodies.items()}
    builds = _cpu_builds(problem, target, folder)
    with open_children() as children:
        limits = Limits.of(target)
        yield Case(
            children,
            problem,
            _POINTS,
            builds,
            broken,
            lambda name: limits,
            [*roots],
            **options,
        )


@contextmanager
def local(folder: Path) -> Iterator[Case]:
    """This machine's CPU."""
    engine = LocalMachine()
    device = engine.resolve(TargetSpec(kind="llvm", num_cores=2))
    with _on_cpu(folder, device, lambda: engine.children(device, print), [os.getpid()]) as case:
        yield case


@contextmanager
def rpc(folder: Path) -> Iterator[Case]:
    """A device behind TVM's RPC tracker, whose server begins anew where it ended."""
    from rpc_network import KEY, RpcNetwork

    from dietcode.measure.rpc import RpcDevice

    network = RpcNetwork()
    try:
        engine = RpcDevice(network.tracker, KEY, wait_secs=60.0, session_secs=20.0)
        network.serve_for_ever(lambda: engine.num_servers() == 1)
        device = engine.resolve(TargetSpec(kind="llvm", mcpu=Host.here().mcpu, num_cores=2))
        with _on_cpu(
            folder,
            device,
            lambda: engine.children(device, print),
            [os.getpid()],
            good_secs=15.0,
            others=network.pids(),
        ) as case:
            yield case
    finally:
        network.close()


def _need_ray() -> None:
    """Skip without it; it is not imported yet, because it reads once then whether there is a token."""
    if find_spec("ray") is None:
        pytest.skip(of_extra("ray"))


@contextmanager
def _cluster() -> Iterator[tuple[Any, int]]:
    """A Ray cluster of one machine that measures, with this process as a driver; and its process."""
    from ray_nodes import Node, environment, free_port, wait_until

    folder = Path(tempfile.mkdtemp(prefix="rt", dir="/tmp"))  # short: the paths of sockets are
    address = f"127.0.0.1:{free_port()}"
    node = Node(folder, "--head", "--measures", "--address", address)
    try:
        node.wait()
        os.environ.update(environment(folder))
        from dietcode.measure.ray_cluster import RayCluster

        engine = RayCluster(address, wait_secs=10.0)
        try:
            wait_until(lambda: bool(engine.slots(DEVICE_KINDS["llvm"])))
            yield engine, node.process.pid
        finally:
            engine.close()
    finally:
        node.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ray(folder: Path) -> Iterator[Case]:
    """The CPU of a node of a Ray cluster."""
    _need_ray()
    with _cluster() as (engine, pid):
        device = engine.resolve(TargetSpec(kind="llvm"))
        with _on_cpu(folder, device, lambda: engine.children(device, print), [pid]) as case:
            yield case


@contextmanager
def _on_gpu(
    folder: Path, open_children: Callable[[], AbstractContextManager[Children]], roots: list[int]
) -> Iterator[Case]:
    from compiled import make_problem
    from emulated_gpu import CRASHES, DOES_NOTHING, HANGS, broken_image

    problem = make_problem("mk,nk->mn", {"n": 20, "k": 24})
    symbols = [_GPU_TILES["right"].symbol, f"{_GPU_TILES['right'].symbol}_sum"]
    broken = {}
    for name, body in zip(BROKEN, (DOES_NOTHING, CRASHES, HANGS), strict=True):
        (folder / f"{name}.cubin").write_bytes(broken_image(symbols, body))
        broken[name] = str(folder / f"{name}.cubin")
    target = CudaTarget("sm_90a")
    builds = {
        name: BuildRequest(str(folder / f"{name}.cubin"), CudaRecipe(problem, tile, target))
        for name, tile in _GPU_TILES.items()
    }
    builds["fails"] = BuildRequest(str(folder / "fails.cubin"), CudaRecipe(problem, None, target))  # type: ignore[arg-type]
    points = tuple({"m": m, "n": 20, "k": 24} for m in (1, 17))
    with open_children() as children:
        yield Case(
            children,
            problem,
            points,
            builds,
            broken,
            lambda name: LaunchedKernel(_GPU_TILES.get(name, _GPU_TILES["right"])),
            roots,
            stage="check",
        )


@contextmanager
def _emulated() -> Iterator[pytest.MonkeyPatch]:
    from needs import needs_nvrtc

    if needs_nvrtc.args[0]:
        pytest.skip(needs_nvrtc.kwargs["reason"])
    from emulated_gpu import emulated_gpu

    from dietcode.measure import gpu_device

    with emulated_gpu() as patch:
        patch.setattr(gpu_device, "_L2_BYTES", 1 << 20)
        yield patch


@contextmanager
def gpu(folder: Path) -> Iterator[Case]:
    """A GPU of this machine, on the emulated driver."""
    engine = LocalMachine()
    with _emulated():
        assert find_gpu() is not None
        device = engine.resolve(TargetSpec(kind="cuda", arch="sm_90a"))
        with _on_gpu(folder, lambda: engine.children(device, print), [os.getpid()]) as case:
            yield case


@contextmanager
def ray_gpu(folder: Path) -> Iterator[Case]:
    """The GPU of a node of a Ray cluster, on the emulated driver."""
    _need_ray()
    with _emulated() as patch, _cluster() as (engine, pid):
        from emulated_gpu import building_both

        from dietcode.measure.ray_children import RayChildren

        patch.setattr(RayChildren, "build", building_both(RayChildren.build))
        device = engine.resolve(TargetSpec(kind="cuda", arch="sm_90a"))
        assert device.record["synthetic"]
        listed = {one.record["id"]: one for one in engine.devices(print)}
        assert listed[device.record["id"]] == device
        with _on_gpu(folder, lambda: engine.children(device, print), [pid]) as case:
            yield case


@contextmanager
def fake(folder: Path) -> Iterator[Case]:
    """Children that compute plausible times; what goes wrong with a micro-kernel is told by its name."""
    target = CpuTarget("haswell", (), ("avx2",), 4, 32, 16, 32 << 10, 512 << 10)
    tiles = {name: MicroKernel(rows, 8) for rows, name in enumerate(("right", "other", "fails", *BROKEN), 1)}
    faults = {
        tiles["fails"].name: Fault("build"),
        tiles["wrong"].name: Fault("check"),
        tiles["crashes"].name: Fault("time", "crash"),
        tiles["hangs"].name: Fault("time", "hang"),
    }
    problem, limits = reference_problem(), Limits.of(target)
    builds = {
        name: BuildRequest(f"{name}.so", CpuRecipe(problem, (tile,), 0, (), limits, target))
        for name, tile in tiles.items()
    }
    children = FakeChildren(faults=faults)
    broken = {name: str(next(children.build([builds[name]])).path) for name in BROKEN}
    with ExitStack() as stack:
        stack.callback(children.close)
        yield Case(
            children,
            problem,
            _POINTS,
            builds,
            broken,
            lambda name: limits,
            [],
        )


IMPLEMENTATIONS = {"fake": fake, "local": local, "rpc": rpc, "ray": ray, "gpu": gpu, "ray-gpu": ray_gpu}
