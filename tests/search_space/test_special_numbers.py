"""Signed zeros, NaN, infinities and denormals in kernels, which TVM's arithmetic would simplify away."""

from __future__ import annotations

from typing import Any

import numpy as np
from attention_blocks import attention_of
from compiled import cpu_target
from compiled_block import CompiledBlock
from emulated_block import EmulatedBlock

from dietcode.search_space.cpu.attention.micro_kernel import AttentionKernel
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cpu import CpuTarget
from dietcode.workload.parse import spec_from_data

SIZES = (0.0, 1e-45, 1e-40, 1e-30, 1e-5, 0.3, 0.5, 1.0, 1.5, 2.5, 7.0, 80.0, 1e4, 3e38, np.inf)
NUMBERS = np.float32([sign * size for size in SIZES for sign in (1, -1)] + [np.nan, 3.5])
GRAPH: dict[str, dict[str, Any]] = {
    **{name: {name: ["X", "Z"]} for name in ("add", "sub", "mul", "div", "less", "less_equal")},
    **{name: {name: "X"} for name in ("neg", "abs", "sqrt", "floor", "ceil", "round", "relu", "tanh", "exp")},
    **{name: {name: "X"} for name in ("log", "sigmoid")},
    "chosen": {"where": ["X", "Z", 3]},
    "zero_times": {"mul": [0, "X"]},
    "times_zero": {"mul": ["X", 0]},
    "zero_over": {"div": [0, "X"]},
    "over_zero": {"div": ["X", 0]},
    "plus_zero": {"add": ["X", 0]},
    "less_itself": {"sub": ["X", "X"]},
    "is_number": {"less_equal": ["X", "X"]},
    "bounded": {"clip": "X", "low": 0.3},
}
_MAY_VANISH = 2.0**-125  # what exponentials make of less may be 0


def _of_rows(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node of what rows have once."""
    ((word, given),) = node.items()
    read = given if isinstance(given, list) else [given]
    return {word: [{"X": "R", "Z": "T"}.get(one, one) for one in read]}


def _block(graph: dict[str, dict[str, Any]], dims: dict[str, str], mcpu: str) -> CompiledBlock:
    data = {
        "name": "special",
        "op": {"block": {"version": 1, "graph": graph, "outputs": list(graph)}},
        "tensors": {name: {"dims": own, "dtype": "float32"} for name, own in dims.items()},
        "shape_vars": {"M": {"min": 1, "max": 99}, "N": {"min": 1, "max": 99}},
        "dims": {"m": "M", "n": "N"},
    }
    return CompiledBlock(RowProblem.of_spec(spec_from_data(data)), [RowKernel(2, 16)], cpu_target(mcpu))


def _check(block: CompiledBlock, inputs: dict[str, Any], extents: dict[str, int]) -> None:
    outputs = block.run(inputs, extents)
    for name, found, exact in zip(
        block.problem.outputs, outputs, block_reference(block.problem, inputs).values(), strict=True
    ):
        with np.errstate(all="ignore"):
            right = exact.astype(np.float32)
        may_vanish = name in ("exp", "sigmoid") and np.abs(right) < _MAY_VANISH
        signs = np.signbit(found) == np.signbit(right)
        same = np.isclose(found, right, rtol=1e-6, atol=3e-45, equal_nan=True)
        same &= signs | (found != 0) | (right != 0)
        assert (same | may_vanish).all(), (name, found[~same], right[~same])


def test_functions_of_elements_and_of_rows(avx2: CpuTarget) -> None:
    """In vectors, and one by one: values that a row has once are single elements."""
    x, z = np.meshgrid(NUMBERS, NUMBERS)
    dims = {"X": "mn", "Z": "mn"}
    _check(_block(GRAPH, dims, avx2.mcpu), {"X": x, "Z": z}, {"m": len(x), "n": len(x)})
    rows = {name: _of_rows(node) for name, node in GRAPH.items() if name != "bounded"}
    single = _block(rows | {"wide": {"add": ["X", "R"]}}, {"X": "mn", "R": "m", "T": "m"}, avx2.mcpu)
    for shift in (0, 1, 2, 7, 20):
        inputs = {"X": x, "R": NUMBERS, "T": np.roll(NUMBERS, shift)}
        _check(single, inputs, {"m": len(x), "n": len(x)})


def test_rows_of_minus_infinity_are_zero_or_nan(avx2: CpuTarget) -> None:
    """Of a softmax alone, and of one between two products, on a processor and on a GPU."""
    graph = {
        "zero": {"softmax": "X", "axis": "n"},
        "odd": {"softmax": "X", "axis": "n", "masked_rows": "nan"},
    }
    x = np.zeros((3, 21), np.float32)
    x[1] = -np.inf
    zero, odd = _block(graph, {"X": "mn"}, avx2.mcpu).run({"X": x}, {"m": 3, "n": 21})
    assert (zero[1] == 0).all() and np.isnan(odd[1]).all()
    for found in (zero, odd):
        np.testing.assert_allclose(found[[0, 2]], 1 / 21, rtol=1e-6)
    problem = attention_of("padded", masked_rows="nan")
    kernels = [AttentionKernel(1, 16), AttentionKernel(2, 16, split=True)]
    tiles = [CudaMicroKernel(4, 64, 1, 2, 16), CudaMicroKernel(16, 32, 2, 2, 8, splits=3)]
    extents = {index: extent or 2 for index, extent in problem.extents.items()} | {"k": 70}
    compiled, emulated = CompiledBlock(problem, kernels, cpu_target(avx2.mcpu)), EmulatedBlock(problem, tiles)
    inputs = compiled.inputs(extents)
    inputs["mask"][1] = -np.inf
    right = block_reference(problem, inputs)["O"]
    assert np.isnan(right[1]).all() and np.isfinite(right[0]).all()
    found = [compiled.run(inputs, extents, category) for category in range(len(kernels))]
    for (own,) in [*found, *(emulated.run(tile, inputs, extents) for tile in emulated.tiles)]:
        np.testing.assert_allclose(own, right, rtol=1e-5, atol=1e-5)
