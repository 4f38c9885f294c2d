"""Generated CUDA text, compiled for the CPU and run with threads as fibers: see ``emulated.h``."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from compile_cache import object_file, precompiled_header, shared_library

from dietcode.measure.cuda_driver import map_arguments
from dietcode.search_space.cuda.bulk_instructions import MAP_BYTES
from dietcode.search_space.cuda.bulk_maps import TensorMap
from dietcode.search_space.cuda.classes import AlignmentClass
from dietcode.search_space.cuda.forms import call_shape, classes_of, device_problem, launches_of
from dietcode.search_space.cuda.instructions import HELPERS
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.cuda.warpgroup_instructions import DESCRIPTOR
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.target.cuda import CudaTarget
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled, rounded, widened

FOLDER = Path(__file__).parent
TARGET = CudaTarget("sm_90")
ORDERS = (0, 1, 2)
FLAGS = (
    "-std=c++17",
    "-O0",
    "-fno-strict-aliasing",
    "-fsanitize=bounds",
    "-fsanitize-undefined-trap-on-error",
    "-w",
    "-fPIC",
    "-shared",
)
_SIGNATURE = re.compile(r"__global__ void (?:__launch_bounds__\([\d,]+\) )?(\w+)\(([^)]*)\)\s*\{")
_GUARD = 64  # floats before and behind each buffer, all of them this NaN, which is two in half precision
_CANARY = np.uint32(0x7FC17FC2)

_FAILURES = {
    1: "threads of a block wait at different barriers",
    2: "wrote behind its shared memory",
    3: "an address is no multiple of what is read there",
    4: "a grid of no whole clusters",
    10: "a descriptor is of no tile",
    11: "threads of a warpgroup gave other descriptors",
    12: "products began without a fence",
    13: "products read what was not published, or overwritten meanwhile",
    14: "products were not waited for",
    20: "a barrier is used that was not made, or was overwritten",
    21: "copies are told to barriers that were not shown to them",
    22: "more threads arrive than a barrier counts",
    23: "a box is of no map, or of no tile",
    24: "copies were not waited for, or bytes are expected that nobody copied",
    25: "registers are taken that nobody gave",
    26: "threads wait for a phase that is never over",
    27: "shared memory of a block is used that has ended",
    28: "there is no such block in the cluster",
}


def host_text(text: str) -> str:
    """C++ for the CPU: the text itself, and of each function a form that takes an array of pointers."""
    text = re.sub(r"#\s*include.*\n", "", text)
    for name, helper in HELPERS.items():
        if name != DESCRIPTOR:
            text = text.replace(helper, "")  # the emulator's own stand in their place
    text = re.sub(
        r"multiply_warpgroup_(b?)float16_(\d+)<",
        lambda found: f"emulated::multiply_warpgroup<{found[2]}, {'true' if found[1] else 'false'}, ",
        text,
    )
    text = re.sub(r"\*\((float[24]|uint[24]?|ushort[24]|half[24])\*\)\(", r"*emulated::vector<\1>(", text)
    dynamic = r"\1* \2 = (\1*)emulated::dynamic_shared;"
    text = re.sub(r"extern __shared__ __align__\(\d+\) (\w+) (\w+)\[\];", dynamic, text)
    text = re.sub(r"__shared__ (alignas\(\d+\))", r"\1 __shared__", text)  # g++ is strict about their order
    lines = [text]
    for name, parameters in _SIGNATURE.findall(text):
        kinds = [re.sub(r"__restrict__|\w+$", "", p.strip()).strip() for p in parameters.split(",")]
        given = ", ".join(f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds))
        lines.append(f'extern "C" void call_{name}(void** a) {{ {name}({given}); }}')
    return "\n".join(lines) + "\n"


def counting(text: str) -> str:
    """The text with its loads and stores of the tiles of SIMT units counted, see ``emulated_banks.h``."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not re.search(r"\btiles_ptr\b", line) or "__shared__" in line:
            continue
        left, _, right = line.partition(" = ")
        sides = []
        for part, is_store in ((left, "true"), (right, "false")):
            of, kind = r"\*\((float[24])\*\)\(tiles_ptr \+ ", f"{number}, {is_store}"
            vectors = re.sub(of, rf"*emulated::counted<\1, {kind}>(tiles_ptr, ", part)
            sides.append(re.sub(r"\btiles_ptr\[", f"emulated::Words<{kind}>{{tiles_ptr}}[", vectors))
        lines[number] = " = ".join(sides)
    return "\n".join(lines)


def without_classes(text: str) -> str:
    """The text without the functions of alignment classes that ask for something."""
    head, *functions = re.split(r'(?=extern "C" __global__)', text)
    return head + "".join(f for f in functions if not re.match(r"[^(]*\([\d,]+\) \w+_by\d+\(", f))


@cache
def compiled(text: str, counts_banks: bool = False) -> ctypes.CDLL:
    """The text as a shared library of this process; an index past an array of a thread or block aborts."""
    source, flags = host_text(text), (*FLAGS, "-DCOUNTS_BANKS") if counts_banks else FLAGS

    def make(path: Path) -> None:
        header, emulator = _emulator(flags)
        command = [
            "g++",
            *flags,
            "-include",
            header,
            "-x",
            "c++",
            "-",
            "-x",
            "none",
            emulator,
            "-o",
            str(path),
        ]
        subprocess.run(command, input=source, check=True, capture_output=True, text=True)

    return ctypes.CDLL(str(shared_library((source, *flags, *_compiler()), make)))


@cache
def _emulator(flags: tuple[str, ...]) -> tuple[str, str]:
    """The emulator's text as the compiler has read it, and compiled, once for all of some flags."""
    text = str(FOLDER / "emulated.h")

    def read(path: Path) -> None:
        command = ["g++", *flags, "-x", "c++-header", text, "-o", str(path)]
        subprocess.run(command, check=True, capture_output=True)

    def build(path: Path) -> None:
        command = ["g++", *flags, "-O2", "-DEMULATOR", "-c", "-x", "c++", text, "-o", str(path)]
        subprocess.run(command, check=True, capture_output=True)

    made_of = (*flags, *_compiler())
    return str(precompiled_header(made_of, read).with_suffix("")), str(object_file(made_of, build))


@cache
def _compiler() -> tuple[str, ...]:
    """What else the code depends on: the compiler, and the emulator's text."""
    said = subprocess.run(["g++", "--version"], check=True, capture_output=True, text=True).stdout
    return (said, *(path.read_text() for path in sorted(FOLDER.glob("*.h"))))


def guarded(array: Any, shift: int = 0) -> tuple[Any, Any]:
    """A copy between two runs of canaries, so many bytes behind a 16-byte boundary, and all of it."""
    words = -(-array.nbytes // 4)
    area = np.full(words + 2 * _GUARD + 8, _CANARY, np.uint32)
    start = 4 * (_GUARD + (-(area.ctypes.data // 4 + _GUARD) % 4)) + shift
    copy = area.view(np.uint8)[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy, area


def is_whole(area: Any, copy: Any) -> bool:
    """Whether no canary was overwritten, not even by half."""
    given, whole = area.view(np.uint8), np.full(len(area), _CANARY, np.uint32).view(np.uint8)
    start = copy.ctypes.data - area.ctypes.data
    end = start + copy.nbytes
    return bool((given[:start] == whole[:start]).all() and (given[end:] == whole[end:]).all())


def encoded_map(library: ctypes.CDLL, one: TensorMap, address: int) -> Any:
    """A tensor map as the emulator has it, 128 bytes at a multiple of 128."""
    area = (ctypes.c_char * (2 * MAP_BYTES))()
    place = (ctypes.c_char * MAP_BYTES).from_buffer(area, -ctypes.addressof(area) % MAP_BYTES)
    status = library.encode_map(place, *map_arguments(one, address))
    assert status == 0, f"no driver makes a map of {one}"
    return place


def launch(
    problem: Any,
    library: ctypes.CDLL,
    tile: CudaMicroKernel,
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    extents: dict[str, int],
    order: int = 0,
    own: AlignmentClass | None = None,
    shift: int = 0,
    most_blocks: int = 4,
) -> dict[str, Any]:
    """What a call leaves in the outputs, found as they are given; canaries lie around all tensors.

    Without `own` it is of the widest alignment class that the extents fit. Inputs begin so many
    elements behind a boundary of 16 bytes. A persistent grid has `most_blocks` blocks at most.
    """
    arrays = {name: np.asarray(value) for name, value in (inputs | outputs).items()}
    shape = call_shape(problem, tile, extents)
    for name, region in shape.regions.items():
        assert region.first % 4 == 0
        arrays[name] = np.full(int(region.size), np.nan, np.float32)
    given = {
        name: guarded(array, shift * array.itemsize if name in inputs else 0)
        for name, array in arrays.items()
    }
    own = own or next(one for one in classes_of(problem, tile) if one.serves(extents))
    for function, (x, y) in zip(launches_of(problem, tile, own), shape.grids, strict=True):
        values = [ctypes.c_void_p(given[name][0].ctypes.data) for name in function.arguments]
        sizes = [ctypes.c_int64(extents[letter]) for letter in problem.dynamic]
        maps = [one.at(shape.block_extents) for one in function.maps]
        encoded = [encoded_map(library, one, given[one.argument][0].ctypes.data) for one in maps]
        taken = (*values, *sizes, *encoded)
        pointers = (ctypes.c_void_p * len(taken))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in taken)
        )
        call = getattr(library, f"call_{function.symbol}")
        blocks = min(int(x), most_blocks) if function.persistent else int(x)
        grid = (blocks, int(y), function.threads, function.shared_bytes)
        status = library.emulate(call, *grid, pointers, order, function.cluster)
        assert status == 0, f"{tile.name}: {_FAILURES[status]}"
    for name, (copy, area) in given.items():
        assert is_whole(area, copy), f"{tile.name}: wrote outside {name} at {extents}"
        if name in inputs:
            assert np.array_equal(copy, inputs[name], equal_nan=True), f"{tile.name}: wrote to {name}"
    return {name: given[name][0].copy() for name in outputs}


class Emulated:
    """Micro-kernels of one problem, run on the CPU; what is only read is not compiled."""

    def __init__(
        self, problem: Problem, tiles: Sequence[CudaMicroKernel], target: CudaTarget = TARGET
    ) -> None:
        self.problem, self.tiles = device_problem(problem), tiles
        self.text = cuda_text(problem, tiles, target)

    @cached_property
    def library(self) -> Any:
        """What is called; a test may put something else there."""
        return compiled(self.text)

    def random_inputs(self, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
        """Normal numbers, rounded to the dtype of the operands."""
        rng, problem = np.random.default_rng(seed), self.problem
        return {
            name: rounded(
                rng.standard_normal(problem.shape(name, extents), dtype=np.float32), problem.operand_dtype
            )
            for name in problem.inputs
        }

    def run(
        self,
        tile: CudaMicroKernel,
        inputs: dict[str, Any],
        extents: dict[str, int],
        order: int = 0,
        own: AlignmentClass | None = None,
        shift: int = 0,
        most_blocks: int = 4,
    ) -> Any:
        """The output as float32; what a function reads past a tensor's end is NaN."""
        problem = self.problem
        output = nan_filled(problem.shape(problem.output, extents), problem.output_dtype)
        outputs, how = {problem.output: output}, (order, own, shift, most_blocks)
        found = launch(problem, self.library, tile, inputs, outputs, extents, *how)
        return widened(found[problem.output], problem.output_dtype)

    def check(
        self, extents: dict[str, int], seed: int = 0, orders: Sequence[int] = (0,), most_blocks: int = 4
    ) -> None:
        """Every micro-kernel against float64."""
        inputs = self.random_inputs(extents, seed)
        expected = reference(self.problem, inputs)
        unit = UNIT_ROUNDOFF[self.problem.output_dtype] + 1e-5
        scale = float(np.abs(expected).max()) + 1.0
        for tile in self.tiles:
            for order in orders:
                output = self.run(tile, inputs, extents, order, most_blocks=most_blocks)
                assert np.isfinite(output).all(), f"{tile.name}: not all written at {extents}, order {order}"
                error = float(np.abs(output - expected).max()) / scale
                assert error < unit, f"{tile.name}: off by {error} at {extents}, order {order}"
