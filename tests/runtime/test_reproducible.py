"""``reproducible``: a row's bits do not depend on the shape it came in, whichever category serves it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_libraries import SPECS, built, make_parts, spec_data

import dietcode
from dietcode.dispatcher.rule import Branch, Leaf, Rule
from dietcode.library.build import library_files
from dietcode.runtime.manifest import write_folder
from dietcode.search_space.cpu.limits import Limits, MicroKernel


@pytest.mark.parametrize(
    ("name", "variable", "rows"), [("dense", "T", 16), ("rows", "M", 1), ("epilogue", "T", 4)]
)
def test_the_bits_of_a_row_are_the_same_for_every_shape(name: str, variable: str, rows: int) -> None:
    library = dietcode.load(built(name))
    largest, dims = SPECS[name]["shape_vars"][variable]["max"], SPECS[name]["dims"]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((largest * rows, dims["k"]), dtype=np.float32)
    weights = library.pack(W=rng.standard_normal((dims["n"], dims["k"]), dtype=np.float32))
    bias = rng.standard_normal(dims["n"], dtype=np.float32)
    residual = rng.standard_normal((largest * rows, dims["n"]), dtype=np.float32)

    def call(size: int) -> Any:
        extra = {"bias": bias, "R": residual[: size * rows]} if name == "epilogue" else {}
        return np.asarray(library(X=x[: size * rows], W=weights, **extra)).view(np.uint32)

    whole = call(largest)
    categories = {library.select(**{variable: size}) for size in range(1, largest + 1)}
    assert categories == {0, 1}, "both micro-kernels have their turn"
    for size in range(1, largest + 1):
        np.testing.assert_array_equal(call(size), whole[: size * rows], err_msg=f"{variable}={size}")


def test_no_axis_of_a_micro_kernel_changes_a_bit(tmp_path: Path) -> None:
    """Tails, ranges of the reduction, copies of rows: a category each, taken in turns by the shapes."""
    data = spec_data(
        "axes",
        op={"einsum": "mk,nk->mn", "epilogue": ["bias", {"scale": 0.3}, {"gelu": "tanh"}]},
        shape_vars={"M": {"min": 1, "max": 36}},
        dims={"m": "M", "n": 75, "k": 131},
        objective={"reproducible": True},
    )
    parts = make_parts(data)
    lanes = Limits.of(parts.target).lanes
    kernels = (
        MicroKernel(3, lanes),
        MicroKernel(4, 2 * lanes, "partition"),
        MicroKernel(5, lanes, "global"),
        MicroKernel(2, 2 * lanes, "checked"),
        MicroKernel(3, 2 * lanes, k_tile=32),
        MicroKernel(4, lanes, "partition", k_tile=16, gather=True),
        MicroKernel(2, lanes, gather=True),
    )
    tree: Any = Leaf(0)
    for size in range(1, 36):  # each shape another category than the one before
        tree = Branch("M", size, tree, Leaf(size % 7))
    rule = Rule(("M",), 7, tree)
    write_folder(
        tmp_path / "axes", library_files(dataclasses.replace(parts, micro_kernels=kernels, rule=rule))
    )
    library = dietcode.load(tmp_path / "axes")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((36, 131), dtype=np.float32)
    weights = library.pack(W=rng.standard_normal((75, 131), dtype=np.float32))
    bias = rng.standard_normal(75, dtype=np.float32)

    def call(size: int) -> Any:
        return np.asarray(library(X=x[:size], W=weights, bias=bias)).view(np.uint32)

    whole = call(36)
    assert {library.select(M=size) for size in range(1, 37)} == set(range(7))
    for size in range(1, 37):
        np.testing.assert_array_equal(call(size), whole[:size], err_msg=f"M={size}")
