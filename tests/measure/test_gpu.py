"""A GPU of this machine, and the process that measures on it; the driver is emulated."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs_nvrtc

from dietcode.errors import TargetError
from dietcode.measure import gpu_children
from dietcode.measure.cuda_driver import GpuError
from dietcode.measure.gpu import Gpu, find_gpu, list_gpus
from dietcode.measure.gpu_children import LocalGpu
from dietcode.measure.gpu_session import Session
from dietcode.measure.records import Measurement
from dietcode.measure.store import FileKeeper
from dietcode.search_space.cuda.launches import call_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.problem import Problem, Stage
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.workload.dtypes import rounded, widened

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("library", "search_space"))
from compiled import make_problem

pytestmark = needs_nvrtc
TILE = CudaMicroKernel(8, 16, 2, 2, 4, splits=3)
PROBLEM = make_problem("mk,nk->mn", {"n": 20, "k": 24}, [Stage("bias", tensor="bias"), Stage("relu")])
POINTS = [{"m": m, "n": 20, "k": 24} for m in (1, 17)]


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    from emulated_gpu import emulated_gpu

    with emulated_gpu() as patch:
        patch.setattr(gpu_children, "_L2_BYTES", 1 << 20)
        yield patch


@pytest.fixture(scope="module")
def gpu(patch: pytest.MonkeyPatch) -> Gpu:
    found = find_gpu()
    assert found is not None
    return found


def request_of(cubin: bytes, problem: Problem = PROBLEM) -> dict[str, Any]:
    calls = [call_of(problem, TILE, point) for point in POINTS]
    facts = {"is_timed": True, "keeps": True, "max_checked_flops": 1e9}
    return {"problem": problem, "cubin": cubin, "calls": calls, **facts}


def test_gpus_are_told_by_the_driver(gpu: Gpu) -> None:
    assert [str(found) for found in list_gpus()] == [
        "emulated: computes on the CPU (sm_90)",
        "emulated: computes on the CPU (sm_86)",
    ]
    assert (gpu.index, gpu.num_sms, gpu.capability, gpu.place) == (0, 4, 90, "0000:00:00.0")
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


def test_what_fails_ends_its_process_alone(gpu: Gpu) -> None:
    from emulated_gpu import CRASHES, DOES_NOTHING, HANGS, broken_image

    children, symbols = LocalGpu(gpu), [TILE.symbol, f"{TILE.symbol}_sum"]
    try:

        def run(body: str, timeout_secs: float = 60.0) -> dict[str, Any] | str:
            return children.run("measure_kernel", request_of(broken_image(symbols, body)), timeout_secs)

        assert "wrong result: error nan of the output's scale at {'m': 1" in str(run(DOES_NOTHING))
        assert run(CRASHES) == "ChildProcessError: Subprocess terminated"
        assert run(HANGS, 1.0) == "no answer within 1 s; the process was ended"
        unknown = children.run("measure_kernel", request_of(b"\x7fELF".ljust(64, b"\0")), 60.0)
        assert str(unknown).endswith("GpuError: cuModuleGetFunction: CUDA_ERROR (500)")
        target = CudaTarget("sm_90a")
        right = request_of(compile_cubin(cuda_text(PROBLEM, [TILE], target), target))
        found = children.run("measure_kernel", right, 60.0)
        assert isinstance(found, dict), found
        assert found["max_error"] < 1e-6
        # Blocks of both functions by the clock of the driver: one wave each, at both extents.
        assert found["secs"] == pytest.approx([1e-5, 1e-5], rel=1e-3)
        assert (found["registers"], found["stack_bytes"]) == (40, 0)
    finally:
        children.close()


def test_memory_that_is_full_is_made_room_in(gpu: Gpu) -> None:
    from emulated_driver import load_driver

    session = Session(0, 1 << 10)
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
    import json

    from dietcode.cli import cuda as cli_cuda

    def facts() -> dict[str, Any]:
        return json.loads(inside("targets", "--json").stdout)[1]

    assert not facts()["measure"]  # an emulated one is none
    real = Gpu(0, "NVIDIA H200", 132, 90, 50 << 20, "0000:1b:00.0", CudaTarget("sm_90a"))
    monkeypatch.setattr(cli_cuda, "list_gpus", lambda: [real])
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

    monkeypatch.setattr(cli_cuda, "list_gpus", too_old)
    assert not facts()["measure"] and "CUDA 12.8" in facts()["reason"]
