"""A library whose calls take the widest alignment class that their extents and their addresses allow."""

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

from dietcode.library.cuda.code import compile_library
from dietcode.search_space.cuda.forms import device_problem, functions_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.reference import reference
from dietcode.target.cuda import CudaTarget

sys.path.append(str(Path(__file__).parents[1] / "search_space"))
from compiled import make_problem
from emulation import compiled

pytestmark = needs_nvrtc
TARGET = CudaTarget("sm_90")
TILES = (CudaMicroKernel(32, 16, 2, 8, 8), CudaMicroKernel(32, 16, 16, 8, 16, stages=2, unit="mma"))
PROBLEM = device_problem(
    replace(make_problem("mk,nk->mn", {}, constant=False), operand_dtype="float16", output_dtype="float16")
)


@pytest.fixture(scope="module")
def driver() -> ctypes.CDLL:
    found = load_driver()
    names = [function.symbol for tile in TILES for function in functions_of(PROBLEM, tile)]
    register(found, compiled(cuda_text(PROBLEM, TILES, TARGET)), names)
    return found


@pytest.fixture(scope="module")
def library(driver: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The first category for multiples of 3, the other for the rest."""
    path = tmp_path_factory.mktemp("library") / "library.so"
    path.write_bytes(compile_library(PROBLEM, TILES, ("T", "%", 3, 0, 1), ("T",), (TARGET,)).library)
    return tvm_ffi.load_module(str(path))


def moved(array: Any, elements: int) -> Any:
    """A copy that begins so many elements behind a boundary, as a view of a larger tensor may."""
    area = aligned(np.zeros(array.size + elements, array.dtype))
    area[elements:] = array.reshape(-1)
    return area[elements:].reshape(array.shape)


@pytest.mark.thorough
@pytest.mark.parametrize("value", [2**33 + 1, 2])  # the first is a multiple of 3
@pytest.mark.parametrize(
    ("k", "n", "shifts", "suffix"),
    [
        (24, 16, (0, 0, 0), "_by8"),
        (24, 16, (8, 16, 8), "_by8"),
        (24, 16, (4, 0, 0), "_by4"),
        (24, 16, (0, 0, 4), "_by4"),
        (24, 16, (1, 0, 0), ""),  # a view that starts at an odd element
        (24, 16, (0, 3, 0), ""),
        (24, 16, (0, 0, 2), ""),
        (12, 20, (0, 0, 0), "_by4"),
        (12, 16, (2, 0, 0), ""),
        (13, 16, (0, 0, 0), ""),
        (16, 9, (0, 0, 0), ""),
    ],
)
def test_a_call_takes_the_widest_class_that_it_has(
    value: int, k: int, n: int, shifts: tuple[int, int, int], suffix: str, library: Any, driver: ctypes.CDLL
) -> None:
    rng = np.random.default_rng(k)
    inputs = {
        name: moved(rng.standard_normal(shape).astype(np.float16), shift)
        for name, shape, shift in (("X", (19, k), shifts[0]), ("W", (n, k), shifts[1]))
    }
    output = moved(np.full((19, n), np.nan, np.float16), shifts[2])
    library["run"](*(on_device(a) for a in (*inputs.values(), output)), 0, value)
    launched = ctypes.c_char_p.in_dll(driver, "last_kernel").value
    assert launched == f"{TILES[int(value % 3 > 0)].symbol}{suffix}".encode()
    wide = {name: array.astype(np.float32) for name, array in inputs.items()}
    assert np.abs(output - reference(PROBLEM, wide)).max() < 0.02
