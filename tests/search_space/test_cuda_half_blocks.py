"""Blocks in half precision on an emulated GPU: sums and functions in float32, against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import product_blocks
import pytest
import row_blocks
from attention_blocks import ON_GPUS, attention_of
from emulated_block import EmulatedBlock, extents_of

from dietcode.errors import SpecError
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.forms import problem_from_json, problem_of
from dietcode.workload.dtypes import rounded, widened
from dietcode.workload.parse import spec_from_data

Own = TypeVar("Own", bound=BlockProblem)
DTYPES = ("float16", "bfloat16")
PRODUCT_TILES = [CudaMicroKernel(8, 32, 2, 1, 16), CudaMicroKernel(16, 16, 1, 4, 8)]
ROW_TILES = [CudaMicroKernel(8, 16, 1, 2, 8), CudaMicroKernel(1, 128, 1, 1, 8)]
ATTENTION_TILES = [CudaMicroKernel(32, 32, 4, 4, 32), CudaMicroKernel(16, 32, 2, 2, 8, splits=3)]


def in_half(problem: Own, dtype: str) -> Own:
    """The problem with all tensors but positions, and outputs, in another dtype."""
    names = (*problem.inputs, *problem.outputs)
    return replace(problem, dtypes={n: dtype for n in names if problem.dtype(n) == "float32"})


def data_of(dtype: str, target: dict[str, str] | None = None) -> dict[str, Any]:
    """A product with a residual, which is an output, and a norm of it."""
    return {
        "name": "product-residual-norm",
        "op": {
            "block": {
                "version": 1,
                "graph": {
                    "P": {"einsum": ["X", "W"], "dims": "mn"},
                    "S": {"add": ["P", "R"]},
                    "Y": {"layernorm": ["S", "gamma"], "axis": "n"},
                },
                "outputs": ["S", "Y"],
            }
        },
        "tensors": {
            name: {"dims": dims, "dtype": dtype}
            for name, dims in {"X": "mk", "W": "nk", "R": "mn", "gamma": "n"}.items()
        },
        "shape_vars": {"M": {"min": 1, "max": 50}},
        "dims": {"m": "M", "n": 37, "k": 21},
        "target": target or {"kind": "cuda", "arch": "sm_90"},
    }


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("name", product_blocks.BLOCKS)
def test_products_are_right(name: str) -> None:
    dtype = DTYPES[list(product_blocks.BLOCKS).index(name) % 2]
    block = EmulatedBlock(in_half(product_blocks.problem_of(name), dtype), PRODUCT_TILES)
    for sizes in ((1,), (7, 5, 3), (19, 2, 35)):
        block.check(extents_of(block.problem, *sizes))


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("name", row_blocks.on_gpus())
def test_rows_are_right(name: str) -> None:
    dtype = DTYPES[list(row_blocks.BLOCKS).index(name) % 2]
    block = EmulatedBlock(in_half(row_blocks.problem_of(name), dtype), ROW_TILES)
    for sizes in ((1,), (2, 3, 37, 131)):
        block.check(row_blocks.complete(block.problem, extents_of(block.problem, *sizes)))


@pytest.mark.parametrize("name", ON_GPUS)
def test_attention_is_right(name: str) -> None:
    dtype = DTYPES[ON_GPUS.index(name) % 2]
    block = EmulatedBlock(in_half(attention_of(name), dtype), ATTENTION_TILES)
    for queries, keys in ((1, 1), (7, 5), (9, 65), (1, 131)):
        sizes = {index: extent or 2 for index, extent in block.problem.extents.items()}
        block.check(sizes | {"q": queries, "k": keys})


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_read_again_is_not_rounded_before(dtype: str) -> None:
    """The norm is of the float32 sum: of one that was rounded to this dtype it would be off by more."""
    problem = problem_of(spec_from_data(data_of(dtype)))
    block = EmulatedBlock(problem, PRODUCT_TILES)
    extents = {"m": 11, "n": 37, "k": 21}
    block.check(extents)
    inputs = block.draw(extents)
    inputs["R"] = rounded(widened(inputs["R"], dtype) * 1e-3 + 40.0, dtype)  # one row is much like another
    inputs["R"][:, ::2] = inputs["R"][:, :1]
    for tile in block.tiles:
        _, found = block.run(tile, inputs, extents)
        exact = {name: widened(value, dtype).astype(np.float64) for name, value in inputs.items()}
        total = exact["X"] @ exact["W"].T + exact["R"]
        centred = total - total.mean(axis=1, keepdims=True)
        right = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * exact["gamma"]
        unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
        assert np.abs(widened(found, dtype) - right).max() < (unit + 1e-4) * np.abs(right).max(), tile.name


def test_problems_travel_as_plain_data() -> None:
    problem = problem_of(spec_from_data(data_of("bfloat16")))
    assert isinstance(problem, BlockProblem) and problem.operand_dtype == "bfloat16"
    assert {problem.dtype(name) for name in (*problem.inputs, *problem.outputs)} == {"bfloat16"}
    assert problem_from_json(problem.to_json()).to_json() == problem.to_json()
    half = problem.num_bytes({"m": 8, "n": 37, "k": 21})
    whole = replace(problem, dtypes={}).num_bytes({"m": 8, "n": 37, "k": 21})
    assert half == whole / 2
    for wrong in ({"X": "float8"}, {"Q": "float16"}):
        with pytest.raises(ValueError, match="dtypes"):
            problem_from_json(problem.to_json() | {"dtypes": wrong})


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"R": "float32"}, "tensors.R.dtype", "allowed: float16, as tensors.X has it"),
        ({"R": "int32"}, "tensors.R.dtype", "allowed on this target: float32, float16, bfloat16"),
        ({"target": {"kind": "llvm"}}, "tensors.X.dtype", "float32; it needs a target of kind cuda"),
    ],
)
def test_refusals(changes: dict[str, Any], field: str, said: str) -> None:
    data = data_of("float16", changes.pop("target", None))
    for name, dtype in changes.items():
        data["tensors"][name]["dtype"] = dtype
    with pytest.raises(SpecError) as caught:
        spec_from_data(data)
    assert caught.value.field == field and said in caught.value.problem, str(caught.value)
