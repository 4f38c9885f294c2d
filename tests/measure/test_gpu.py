"""A GPU of this machine, and the process that measures on it; the driver is emulated."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs_nvrtc

from dietcode.errors import TargetError
from dietcode.measure import gpu_device as gpu_device_module
from dietcode.measure import gpu_worker
from dietcode.measure.cuda_driver import GpuError
from dietcode.measure.gpu import Gpu, find_gpu, list_gpus
from dietcode.measure.gpu_device import gpu_device
from dietcode.measure.gpu_session import GpuSession
from dietcode.measure.gpu_worker import CudaRecipe, GpuWorker, LaunchedKernel
from dietcode.measure.local import LocalMachine
from dietcode.measure.records import Measurement
from dietcode.measure.requests import BuildRequest, CheckRequest, TimeRequest
from dietcode.measure.store import FileKeeper
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.launches import call_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.stage import Stage
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget
from dietcode.workload.dtypes import rounded, widened
from dietcode.workload.target_spec import TargetSpec

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("library", "search_space"))
from compiled import make_problem

pytestmark = needs_nvrtc
TILE = CudaMicroKernel(8, 16, 2, 2, 4, splits=3)
PROBLEM = make_problem("mk,nk->mn", {"n": 20, "k": 24}, [Stage("bias", tensor="bias"), Stage("relu")])
POINTS = tuple({"m": m, "n": 20, "k": 24} for m in (1, 17))


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    from emulated_gpu import emulated_gpu

    with emulated_gpu() as patch:
        patch.setattr(gpu_device_module, "_L2_BYTES", 1 << 20)
        yield patch


@pytest.fixture(scope="module")
def gpu(patch: pytest.MonkeyPatch) -> Gpu:
    found = find_gpu()
    assert found is not None
    return found


def test_gpus_are_told_by_the_driver(gpu: Gpu) -> None:
    assert [str(found) for found in list_gpus()] == [
        "emulated: computes on the CPU (sm_90)",
        "emulated: computes on the CPU (sm_86)",
    ]
    assert (gpu.index, gpu.num_sms, gpu.capability, gpu.bus_id) == (0, 4, 90, "0000:00:00.0")
    assert gpu.target == CudaTarget("sm_90a")
    assert gpu.is_synthetic and gpu.record["synthetic"]
    other = find_gpu(CudaTarget("sm_86"))
    assert other is not None and other.index == 1
    plain = find_gpu(CudaTarget("sm_90"))
    assert plain is not None and plain.target == CudaTarget("sm_90")
    assert find_gpu(CudaTarget("sm_75")) is None


def set_driver(name: str, value: int) -> None:
    from emulated_driver import load_driver

    ctypes.c_int.in_dll(load_driver(), name).value = value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("driver_version", 12080, "is for CUDA 12.8; what is compiled here needs one for 13.0 or newer"),
        ("init_status", 803, r"the GPU cannot be used: cuInit: CUDA_ERROR \(803\)"),
    ],
)
def test_a_driver_that_will_not_do_says_why(name: str, value: int, message: str, gpu: Gpu) -> None:
    set_driver(name, value)
    try:
        with pytest.raises(TargetError, match=message):
            list_gpus()
    finally:
        set_driver(name, 13000 if name == "driver_version" else 0)


def test_a_driver_without_a_device_is_none(gpu: Gpu) -> None:
    set_driver("init_status", 100)
    try:
        assert find_gpu() is None
    finally:
        set_driver("init_status", 0)


@pytest.mark.thorough
def test_the_driver_tells_what_a_kernel_takes(gpu: Gpu, tmp_path: Path) -> None:
    """What goes wrong, in tests/measure/test_contract.py."""
    with LocalMachine().children(gpu_device(gpu), print) as children:
        recipe = CudaRecipe(PROBLEM, TILE, CudaTarget("sm_90a"))
        (built,) = children.build([BuildRequest(str(tmp_path / "right.cubin"), recipe)])
        assert built.path is not None, built.error
        assert set(built.facts["kernels"]) == {TILE.symbol, f"{TILE.symbol}_sum"}
        assert built.object_bytes == sum(one.code_bytes for one in built.facts["kernels"].values()) > 0
        call = LaunchedKernel(TILE)
        checked = children.check(CheckRequest(PROBLEM, built.path, call, POINTS), 60.0)
        assert checked.error is None and checked.max_error is not None and checked.max_error < 1e-6
        found = children.time(TimeRequest(PROBLEM, built.path, call, POINTS, repeats=5), 60.0)
        assert found.error is None
        # Blocks of both functions by the clock of the driver: one wave each, at both extents.
        assert found.secs == pytest.approx([1e-5, 1e-5], rel=1e-3)
        assert (found.facts["registers"], found.facts["stack_bytes"]) == (40, 0)
        alone = children.time(TimeRequest(PROBLEM, built.path, call, ()), 60.0)
        assert (alone.secs, alone.facts) == ((), found.facts)


def test_tensor_maps_are_made_where_extents_allow_it(gpu: Gpu, tmp_path: Path) -> None:
    """Of two instances the first is copied in bulk, the other by threads."""
    tile = CudaMicroKernel(64, 32, 64, 32, 32, stages=3, unit="tma")
    problem = device_problem(
        replace(make_problem("mk,nk->mn", {"n": 24}), operand_dtype="float16", output_dtype="float16")
    )
    points = tuple({"m": 70, "n": 24, "k": k} for k in (40, 41))
    assert [len(call_of(problem, tile, one).launches[0].maps) for one in points] == [2, 0]
    with LocalMachine().children(gpu_device(gpu), print) as children:
        recipe = CudaRecipe(problem, tile, CudaTarget("sm_90a"))
        (built,) = children.build([BuildRequest(str(tmp_path / "right.cubin"), recipe)])
        assert built.path is not None, built.error
        call = LaunchedKernel(tile)
        checked = children.check(CheckRequest(problem, built.path, call, points), 60.0)
        assert checked.error is None and checked.max_error is not None and checked.max_error < 1e-3
        found = children.time(TimeRequest(problem, built.path, call, points, repeats=5), 60.0)
        assert found.error is None and len(found.secs) == 2


@pytest.mark.parametrize(
    "axes", [{"cluster_columns": 2}, {"persistent": True}, {"cluster_rows": 2, "persistent": True}]
)
def test_clusters_and_persistent_grids_are_launched(axes: dict[str, Any], gpu: Gpu, tmp_path: Path) -> None:
    """Of small tiles, so that there are more of them than the emulated device holds blocks: 4 times 8."""
    problem = replace(make_problem("mk,nk->mn", {"n": 272, "k": 16}, constant=False), operand_dtype="float16")
    tile = CudaMicroKernel(64, 16, 64, 16, 16, stages=2, unit="tma", **axes)
    with LocalMachine().children(gpu_device(gpu), print) as children:
        recipe = CudaRecipe(problem, tile, CudaTarget("sm_90a"))
        (built,) = children.build([BuildRequest(str(tmp_path / "tma.cubin"), recipe)])
        assert built.path is not None, built.error
        points = tuple({"m": m, "n": 272, "k": 16} for m in (1, 190))
        checked = children.check(CheckRequest(problem, built.path, LaunchedKernel(tile), points), 60.0)
        assert checked.error is None
        found = children.time(TimeRequest(problem, built.path, LaunchedKernel(tile), points, repeats=1), 60.0)
        assert found.error is None


def test_machine_code_that_the_driver_refuses(gpu: Gpu, tmp_path: Path) -> None:
    (tmp_path / "unknown.cubin").write_bytes(b"\x7fELF".ljust(64, b"\0"))
    request = TimeRequest(PROBLEM, str(tmp_path / "unknown.cubin"), LaunchedKernel(TILE), POINTS)
    with LocalMachine().children(gpu_device(gpu), print) as children:
        error = children.time(request, 60.0).error
    assert str(error).endswith("GpuError: cuModuleGetFunction: CUDA_ERROR (500)")


def test_what_spills_is_an_error(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = KernelFacts(255, 0, 16, 1000)
    monkeypatch.setattr(gpu_worker, "compile_cubin", lambda *_: b"")
    monkeypatch.setattr(gpu_worker, "facts_of", lambda *_: {TILE.symbol: facts})
    recipe = CudaRecipe(PROBLEM, TILE, CudaTarget("sm_90a"))
    built = GpuWorker(0, 1).build(BuildRequest("nowhere", recipe))
    assert (built.path, built.error) == (None, "spills 16 bytes a thread")


def test_this_machine_s_gpu_is_a_device_of_its_engine(gpu: Gpu) -> None:
    device = LocalMachine().resolve(TargetSpec(kind="cuda", arch="sm_90a"))
    assert (device.target, device.record) == (gpu.target, gpu.record)
    assert device == gpu_device(gpu)
    assert Gpu.from_json(json.loads(json.dumps(gpu.to_json()))) == gpu
    with pytest.raises(TargetError, match="no GPU of sm_75 here"):
        LocalMachine().resolve(TargetSpec(kind="cuda", arch="sm_75"))


def test_memory_that_is_full_is_made_room_in(gpu: Gpu) -> None:
    from emulated_driver import load_driver

    session = GpuSession(0, 1 << 10)
    first = session.tensors(PROBLEM, POINTS[0])
    assert session.tensors(PROBLEM, POINTS[0]) is first
    room = ctypes.c_size_t.in_dll(load_driver(), "free_bytes")
    before, room.value = room.value, 0
    try:
        with pytest.raises(GpuError, match=r"cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY \(2\)"):
            session.tensors(PROBLEM, POINTS[1])
    finally:
        room.value = before
    assert session.tensors(PROBLEM, POINTS[0]) is not first  # it was given up


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_numbers_are_rounded_to_nearest(dtype: str) -> None:
    values = np.asarray([1.0, 1.00390625, 1.01171875, -3.14159, 65504.0, 1e-3], np.float32)
    found = widened(rounded(values, dtype), dtype)
    unit = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert (np.abs(found - values) <= unit * np.abs(values) * (1 + 1e-6)).all()
    if dtype == "bfloat16":
        assert list(found[:3]) == [1.0, 1.0, 1.015625]  # ties go to the even one


def test_targets_say_which_gpu_is_measured_on(
    gpu: Gpu, inside: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dietcode.backends.cuda import availability

    def facts() -> dict[str, Any]:
        return json.loads(inside("targets", "--json").stdout)[1]

    assert not facts()["measure"]  # an emulated one is none
    real = Gpu(0, "NVIDIA H200", 132, 90, 50 << 20, "0000:1b:00.0", CudaTarget("sm_90a"))
    monkeypatch.setattr(availability, "list_gpus", lambda: [real])
    found = facts()
    assert found["measure"] and found["experimental"]
    assert (found["device"], found["num_sms"]) == ("NVIDIA H200 (sm_90), 132 SMs", 132)
    assert found["device_id"] == real.id
    assert "experimental: no record from a device yet" in found["reason"]
    store = FileKeeper().open("sha256:0", real.record)
    assert facts()["experimental"]
    code = KernelFacts(40, 0, 0, 1000)
    store.append(Measurement(TILE, "hardware", (POINTS[0],), (1e-5,), facts=code).to_json())
    assert not facts()["experimental"]

    def too_old() -> list[Gpu]:
        raise TargetError("the NVIDIA driver is for CUDA 12.8")

    monkeypatch.setattr(availability, "list_gpus", too_old)
    assert not facts()["measure"] and "CUDA 12.8" in facts()["reason"]
