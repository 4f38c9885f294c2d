"""Libraries of convolutions, and with global padding, on a driver that computes on the CPU."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from device_tensors import aligned, on_device
from emulated_driver import load_driver, register
from needs import needs_nvrtc

from dietcode.library.cuda.code import compile_library
from dietcode.search_space.cuda.forms import functions_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.shape import CallShape
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.problem import Problem, problem_from_spec
from dietcode.search_space.reference import reference
from dietcode.target.cuda import CudaTarget
from dietcode.workload.parse import spec_from_data

sys.path.append(str(Path(__file__).parents[1] / "search_space"))
from emulation import compiled

pytestmark = needs_nvrtc

TARGET = CudaTarget("sm_90")
TILES = (
    CudaMicroKernel(16, 16, 4, 2, 8, stages=2),
    CudaMicroKernel(16, 16, 4, 2, 8, splits=2, tails="global"),
)
SPEC: dict[str, Any] = {
    "name": "conv",
    "op": {
        "conv2d": {"strides": [2, 1], "padding": [1, 2], "groups": 2},
        "epilogue": ["bias", "relu", {"residual": "R"}],
    },
    "tensors": {
        "X": {"dims": "nhwc", "dtype": "float32"},
        "W": {"dims": "oirs", "dtype": "float32", "constant": True},
    },
    "output": {"name": "Y", "dtype": "float32"},
    "shape_vars": {"B": {"min": 1, "max": 4}, "H": {"min": 2, "max": 9}},
    "dims": {"n": "B", "h": "H", "w": 6, "c": 8, "i": 4, "o": 10, "r": 3, "s": 3},
    "target": {"kind": "cuda", "arch": "sm_90"},
}


@pytest.fixture(
    scope="module", params=[([1, 2], "NHWC"), ([0, 2, 3, 1], "NCHW")], ids=["even", "uneven, kernels of rows"]
)
def problem(request: pytest.FixtureRequest) -> Problem:
    padding, layout = request.param
    options = {**SPEC["op"]["conv2d"], "padding": padding, "data_layout": layout}
    tensors = SPEC["tensors"] | {"X": {"dims": layout.lower(), "dtype": "float32"}}
    spec = {**SPEC, "op": {**SPEC["op"], "conv2d": options}, "tensors": tensors}
    found = problem_from_spec(spec_from_data(spec))
    return dataclasses.replace(found, column_operand_constant=False)


@pytest.fixture(scope="module")
def driver(problem: Problem) -> ctypes.CDLL:
    """The emulated driver, with this library's kernels."""
    names = [function.symbol for tile in TILES for function in functions_of(problem, tile)]
    assert len(names) == len(set(names)) == 1 + 4
    found = load_driver()
    register(found, compiled(cuda_text(problem, TILES, TARGET)), names)
    return found


@pytest.fixture(scope="module")
def library(problem: Problem, driver: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One batch alone goes to the first micro-kernel, the rest to the one with global padding."""
    path = tmp_path_factory.mktemp("library") / "library.so"
    path.write_bytes(compile_library(problem, TILES, ("B", 1, 0, 1), ("B", "H"), (TARGET,)).library)
    return tvm_ffi.load_module(str(path))


def arrays_of(problem: Problem, batch: int, height: int) -> tuple[dict[str, Any], dict[str, int]]:
    extents = {k: size for k, size in problem.extents.items() if size is not None}
    extents |= {"n": batch, "h": height, "p": problem.windows[0].num_positions(height, extents["r"])}
    rng = np.random.default_rng(batch)
    arrays = {
        name: aligned(rng.standard_normal(problem.shape(name, extents), dtype=np.float32))
        for name in problem.arguments
    }
    arrays["Y"] = aligned(np.full(problem.shape("Y", extents), np.nan, np.float32))
    return arrays, extents


@pytest.mark.thorough
@pytest.mark.parametrize(("batch", "height"), [(1, 2), (1, 9), (2, 3), (4, 8)])
def test_both_categories_compute(
    batch: int, height: int, library: Any, problem: Problem, driver: ctypes.CDLL
) -> None:
    arrays, extents = arrays_of(problem, batch, height)
    tensors = [on_device(array) for array in arrays.values()]
    num_bytes = int(library["workspace"](*tensors, batch, height))
    tile = TILES[int(library["select"](batch, height))]
    assert num_bytes == 4 * CallShape(problem, tile, extents).workspace_elements
    assert bool(num_bytes) == (batch > 1)
    workspace = aligned(np.full(num_bytes // 4 + 1, np.nan, np.float32))
    launches = ctypes.c_int.in_dll(driver, "num_launches")
    before = launches.value
    library["run"](*tensors, workspace.ctypes.data, batch, height)
    assert launches.value - before == (1 if batch == 1 else 4)
    assert np.abs(arrays["Y"] - reference(problem, arrays)).max() < 1e-4
    assert np.isnan(workspace[-1])


def test_a_missing_workspace_is_refused(library: Any, problem: Problem) -> None:
    tensors = [on_device(array) for array in arrays_of(problem, 2, 3)[0].values()]
    with pytest.raises(ValueError, match="no workspace"):
        library["run"](*tensors, 0, 2, 3)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("Y", (1, 4, 8, 10), "Y: 4 places of a window; allowed: 5"),
        ("Y", (1, 5, 7, 10), "R: extent 7 of axis .; allowed: 8"),
        ("X", (1, 9, 6, 6), "X: extent 6 of axis .; allowed: 8"),
        ("W", (9, 4, 3, 3), "W: extent 9 of axis 0; allowed: 10"),
        ("bias", (9,), "bias: extent 9 of axis 0; allowed: 10"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    name: str, shape: tuple[int, ...], message: str, library: Any, problem: Problem
) -> None:
    """The library itself, whoever calls it: what it would read is not there."""
    arrays, _ = arrays_of(problem, 1, 9)
    if problem.is_column_first and len(shape) > 1 and name != "W":  # NCHW
        shape = (shape[0], shape[3], *shape[1:3])
    arrays[name] = aligned(np.zeros(shape, np.float32))
    if name == "Y":
        arrays["R"] = aligned(np.zeros(shape, np.float32))
    with pytest.raises(ValueError, match=message):
        library["run"](*(on_device(array) for array in arrays.values()), 0, 1, 9)
