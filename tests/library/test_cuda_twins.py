"""A library whose category multiplies by warpgroups where the GPU can, and by a twin elsewhere."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from device_tensors import aligned, on_device
from emulated_driver import load_driver, register
from needs import needs_nvrtc

from dietcode.library.cuda.code import CudaCode, compile_library
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.reference import reference
from dietcode.target.cuda import CudaTarget

sys.path.append(str(Path(__file__).parents[1] / "search_space"))
from compiled import make_problem
from emulation import compiled

pytestmark = needs_nvrtc

ARCHS = ("sm_90a", "sm_80", "sm_86")
TILE = CudaMicroKernel(128, 64, 64, 64, 128, stages=4, unit="wgmma")  # 192 KiB: more than sm_86 has
PROBLEM = replace(
    make_problem("mk,nk->mn", {"n": 72, "k": 200}), operand_dtype="float16", output_dtype="float16"
)


@pytest.fixture(scope="module")
def code() -> CudaCode:
    return compile_library(PROBLEM, [TILE], 0, (), [CudaTarget(arch) for arch in ARCHS])


@pytest.mark.thorough
def test_no_architecture_is_left_out(code: CudaCode) -> None:
    assert code.left_out == {}
    assert list(code.kernels) == list(ARCHS)
    assert code.ptx_arch == "sm_90"  # without warpgroups, for GPUs that are newer


@pytest.mark.thorough
def test_each_architecture_asks_for_its_own_shared_memory(code: CudaCode) -> None:
    for arch, kernels in code.kernels.items():
        emitted = TILE.on(CudaTarget(arch).sm)
        assert list(kernels) == [TILE.symbol]
        assert kernels[TILE.symbol].shared_bytes == emitted.shared_bytes
        assert kernels[TILE.symbol].stack_bytes == 0
    asked = {arch: kernels[TILE.symbol].shared_bytes for arch, kernels in code.kernels.items()}
    assert asked["sm_86"] < asked["sm_80"] < asked["sm_90a"]


@pytest.mark.parametrize(("capability", "arch"), [((9, 0), "sm_90a"), ((8, 0), "sm_80"), ((8, 6), "sm_86")])
def test_the_loader_takes_the_code_of_the_gpu(
    capability: tuple[int, int], arch: str, code: CudaCode, tmp_path: Path
) -> None:
    driver, target = load_driver(), CudaTarget(arch)
    text = cuda_text(PROBLEM, [TILE], target)
    assert ("wgmma.mma_async" in text) is (arch == "sm_90a")
    register(driver, compiled(text), [TILE.symbol])
    numbers = [(ctypes.c_int * 2).in_dll(driver, name) for name in ("major_of", "minor_of")]
    most, before = ctypes.c_int.in_dll(driver, "block_shared_bytes"), [list(one) for one in numbers]
    most_before = most.value
    for one, value in zip(numbers, capability, strict=True):
        one[0] = value
    most.value = target.sm.block_shared_bytes
    try:
        path = tmp_path / f"{arch}.so"
        path.write_bytes(code.library)
        library, rng = tvm_ffi.load_module(str(path)), np.random.default_rng(0)
        shapes: dict[str, tuple[int, int]] = {"X": (150, 200), "W": (72, 200)}
        inputs: dict[str, Any] = {
            name: aligned(rng.standard_normal(shape, dtype=np.float32).astype(np.float16))
            for name, shape in shapes.items()
        }
        output = aligned(np.full((150, 72), np.nan, np.float16))
        library["run"](*(on_device(array) for array in (*inputs.values(), output)), 0)
    finally:
        for one, value in zip(numbers, before, strict=True):
            one[0] = value[0]
        most.value = most_before
    expected = reference(PROBLEM, inputs)
    assert np.abs(output - expected).max() < 2e-3 * np.abs(expected).max()
