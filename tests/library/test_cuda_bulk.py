"""A library whose category copies in bulk where the GPU, the extents and the addresses of a call allow it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
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
from dietcode.search_space.cuda.forms import device_problem, functions_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.reference import reference
from dietcode.target.cuda import CudaTarget

sys.path.append(str(Path(__file__).parents[1] / "search_space"))
from compiled import make_problem
from emulation import compiled

pytestmark = needs_nvrtc

ARCHS = ("sm_90a", "sm_80")
TILE = CudaMicroKernel(128, 64, 64, 64, 64, stages=4, unit="tma")
PADDED = replace(TILE, tails="global")
CLUSTER = replace(TILE, stages=3, cluster_rows=2, persistent=True)
GOING_ON = replace(TILE, stages=3, persistent=True)
PROBLEM = device_problem(
    replace(make_problem("mk,nk->mn", {}, constant=False), operand_dtype="float16", output_dtype="float16")
)


@pytest.fixture(scope="module", params=[TILE, PADDED], ids=["local", "global"])
def tile(request: pytest.FixtureRequest) -> CudaMicroKernel:
    return request.param


@pytest.fixture(scope="module")
def code(tile: CudaMicroKernel) -> CudaCode:
    return compile_library(PROBLEM, [tile], 0, (), [CudaTarget(arch) for arch in ARCHS])


class Gpu:
    """The library on an emulated GPU of an architecture."""

    def __init__(self, tile: CudaMicroKernel, code: CudaCode, arch: str, path: Path) -> None:
        self.driver, target = load_driver(), CudaTarget(arch)
        names = [function.symbol for function in functions_of(PROBLEM, tile)]
        register(self.driver, compiled(cuda_text(PROBLEM, [tile], target)), names)
        (ctypes.c_int * 2).in_dll(self.driver, "major_of")[0] = target.number // 10
        (ctypes.c_int * 2).in_dll(self.driver, "minor_of")[0] = target.number % 10
        path.write_bytes(code.library)
        self.library = tvm_ffi.load_module(str(path))

    def number(self, name: str) -> Any:
        """A number of the driver's."""
        return ctypes.c_int.in_dll(self.driver, name)

    def check(self, m: int, n: int, k: int, shift: int = 0) -> tuple[str, int]:
        """Call; which function was the block's, and how many tensor maps were made."""
        rng, before = np.random.default_rng(k), self.number("num_maps").value
        inputs = {
            name: moved(rng.standard_normal(shape).astype(np.float16), shift)
            for name, shape in (("X", (m, k)), ("W", (n, k)))
        }
        output = aligned(np.full((m, n), np.nan, np.float16))
        tensors = [on_device(array) for array in (*inputs.values(), output)]
        needed = self.library["workspace"](*tensors)
        workspace = aligned(np.full(needed // 4 + 4, np.nan, np.float32))
        self.library["run"](*tensors, workspace.ctypes.data)
        wide = {name: array.astype(np.float32) for name, array in inputs.items()}
        expected = reference(PROBLEM, wide)
        assert np.abs(output - expected).max() < 2e-3 * np.abs(expected).max()
        launched = ctypes.c_char_p.in_dll(self.driver, "last_kernel").value or b""
        return launched.decode(), self.number("num_maps").value - before

    def blocks(self, m: int, n: int, k: int) -> tuple[int, int]:
        """Blocks in x of the last launch of a call, and how many of its launches were of clusters."""
        before = self.number("num_clustered").value
        self.check(m, n, k)
        return self.number("last_grid").value, self.number("num_clustered").value - before


def moved(array: Any, elements: int) -> Any:
    """A copy that begins so many elements behind a boundary, as a view of a larger tensor may."""
    area = aligned(np.zeros(array.size + elements, array.dtype))
    area[elements:] = array.reshape(-1)
    return area[elements:].reshape(array.shape)


@pytest.fixture
def hopper(tile: CudaMicroKernel, code: CudaCode, tmp_path: Path) -> Iterator[Gpu]:
    yield Gpu(tile, code, "sm_90a", tmp_path / "library.so")
    load_driver()  # as it was


@pytest.mark.thorough
def test_maps_are_made_where_extents_and_addresses_allow_it(hopper: Gpu, tile: CudaMicroKernel) -> None:
    if tile is PADDED:  # of copies, which always begin at multiples of 16 bytes
        assert [hopper.check(150, 72, k)[1] for k in (200, 130, 13)] == [2, 2, 2]
        assert hopper.check(150, 72, 200, shift=1)[1] == 2
        return
    assert hopper.check(150, 72, 200) == (f"{tile.symbol}_by8", 2)
    assert hopper.check(150, 72, 1, shift=8) == (tile.symbol, 0)
    assert hopper.check(150, 72, 132) == (f"{tile.symbol}_by4", 0)
    assert hopper.check(150, 72, 130) == (tile.symbol, 0)
    assert hopper.check(150, 72, 200, shift=8) == (f"{tile.symbol}_by8", 2)
    assert hopper.check(150, 72, 200, shift=4) == (f"{tile.symbol}_by4", 0)
    assert hopper.check(150, 72, 200, shift=1) == (tile.symbol, 0)


@pytest.mark.thorough
def test_a_graph_is_captured_with_its_maps(hopper: Gpu) -> None:
    """Nothing that waits or loads is asked of the driver: maps are arguments by value."""
    hopper.library["prepare"](0)
    hopper.number("is_capturing").value = 1
    assert hopper.check(40, 64, 64)[1] == 2
    assert hopper.number("is_capturing").value == 1


def test_a_twin_takes_no_maps_and_fewer_threads(
    tile: CudaMicroKernel, code: CudaCode, tmp_path: Path
) -> None:
    gpu = Gpu(tile, code, "sm_80", tmp_path / "library.so")
    try:
        for k in (200, 130):
            assert gpu.check(150, 72, k)[1] == 0
    finally:
        load_driver()


def test_each_architecture_asks_for_its_own_shared_memory(tile: CudaMicroKernel, code: CudaCode) -> None:
    assert code.left_out == {}
    for arch, kernels in code.kernels.items():
        emitted = tile.on(CudaTarget(arch).sm)
        widest = functions_of(PROBLEM, tile)[-1].symbol if tile is TILE else tile.symbol
        assert kernels[widest].shared_bytes == emitted.shared_bytes
        assert all(own.stack_bytes == 0 for own in kernels.values())


@pytest.fixture(scope="module", params=[CLUSTER, GOING_ON], ids=["cluster", "alone"])
def resident(request: pytest.FixtureRequest) -> CudaMicroKernel:
    return request.param


@pytest.fixture(scope="module")
def resident_code(resident: CudaMicroKernel) -> CudaCode:
    return compile_library(PROBLEM, [resident], 0, (), [CudaTarget(arch) for arch in ARCHS])


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
def test_a_persistent_grid_is_what_the_device_holds(
    resident: CudaMicroKernel, resident_code: CudaCode, tmp_path: Path
) -> None:
    """The emulated device runs 20 blocks of 384 threads at a time, or 10 clusters; others have all."""
    gpu, is_cluster = Gpu(resident, resident_code, "sm_90a", tmp_path / "library.so"), resident.cluster > 1
    try:
        assert gpu.blocks(130, 200, 64) == (8, is_cluster)  # 2 by 4 tiles
        assert gpu.blocks(260, 200, 64) == (16 if is_cluster else 12, is_cluster)
        assert gpu.blocks(300, 640, 64) == (20, is_cluster)  # of 3 by 10, or 4 by 10
        assert gpu.blocks(300, 640, 60) == (40 if is_cluster else 30, 0)
    finally:
        load_driver()


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
def test_twins_are_alone_and_have_all_blocks(
    resident: CudaMicroKernel, resident_code: CudaCode, tmp_path: Path
) -> None:
    gpu = Gpu(resident, resident_code, "sm_80", tmp_path / "library.so")
    try:
        assert gpu.blocks(300, 640, 64) == (40 if resident.cluster > 1 else 30, 0)
    finally:
        load_driver()


@pytest.mark.sampled(keep=1)
def test_clusters_are_captured_in_a_graph(
    resident_code: CudaCode, resident: CudaMicroKernel, tmp_path: Path
) -> None:
    """What a device holds is asked for as the code is loaded."""
    gpu = Gpu(resident, resident_code, "sm_90a", tmp_path / "library.so")
    try:
        gpu.library["prepare"](0)
        gpu.number("is_capturing").value = 1
        assert gpu.check(300, 640, 64)[1] == 2
        assert gpu.number("is_capturing").value == 1
    finally:
        load_driver()
