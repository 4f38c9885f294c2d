"""``reproducible``: a row's bits do not depend on the shape it came in, whichever category serves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_libraries import SPECS, built

import dietcode


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
