"""A library whose micro-kernels treat tails differently."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_libraries import SAFE_ERROR, SPECS, draw, error, expected, make_parts, packed_arguments

import dietcode
from dietcode.dispatcher.rule import Branch, Leaf, Rule
from dietcode.library import build
from dietcode.runtime.manifest import write_folder
from dietcode.search_space.cpu.limits import MicroKernel


def parts_of(name: str, *tails: str) -> Any:
    """One micro-kernel of 5 rows and two vectors for each of `tails`, each for a part of the first range."""
    parts = make_parts(SPECS[name])
    kernels = tuple(MicroKernel(5, 2 * parts.target.lanes(), each) for each in tails)
    variable = parts.task.variables[0]
    root: Any = Leaf(len(kernels) - 1)
    for category in reversed(range(len(kernels) - 1)):
        root = Branch(variable, 4 * category + 3, Leaf(category), root)
    rule = Rule(tuple(parts.task.variables), len(kernels), root)
    return dataclasses.replace(parts, micro_kernels=kernels, rule=rule)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tails") / "lib"
    files: Mapping[str, bytes] = build.library_files(
        parts_of("rows", "partition", "global", "checked", "local")
    )
    write_folder(folder, files)
    return dietcode.load(folder)


def test_every_category_is_right_and_a_row_is_always_the_same(library: Any) -> None:
    whole = draw("rows", M=70)
    weights = packed_arguments(library, whole)["W"]
    first = np.asarray(library(X=whole["X"], W=weights))
    assert error(first, expected("rows", whole)) <= SAFE_ERROR
    categories = {library.select(M=m) for m in range(1, 71)}
    assert categories == {0, 1, 2, 3}
    for m in range(1, 21):
        output = np.asarray(library(X=whole["X"][:m], W=weights))
        np.testing.assert_array_equal(output.view(np.uint32), first[:m].view(np.uint32), err_msg=f"M={m}")


def test_the_categories_say_how_tails_are_treated(library: Any) -> None:
    found = [(c["rows"], c["tails"]) for c in library.dispatch["categories"]]
    assert found == [(5, "partition"), (5, "global"), (5, "checked"), (5, "local")]
    assert library.dispatch["categories"][1]["micro_kernel"].endswith("-global")


def workspace_of(parts: Any) -> int:
    return int(build.own_fields(parts)["workspace_bytes"])


def test_workspace_counts_what_global_padding_copies() -> None:
    """rows: 70 × 100 with K = 37, rows rounded up to 5 and columns to two vectors; nothing is packed."""
    parts = parts_of("rows", "global", "local")
    width = 2 * parts.target.lanes()
    assert workspace_of(parts) == 4 * 70 * (37 + -(-100 // width) * width)
    assert workspace_of(parts_of("rows", "partition", "checked")) == 0
    # varying: 20 × 50 with K = 21, and its packed copy besides
    packed = workspace_of(parts_of("varying", "local"))
    wide = -(-50 // width) * width
    assert workspace_of(parts_of("varying", "local", "global")) == packed + 4 * 20 * (21 + wide)
