"""Outputs of half the size: rounded once, at write-back, whatever the tails."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from compiled import all_tails, make_problem

from dietcode.search_space.limits import TAILS
from dietcode.search_space.problem import Stage
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled, widened

STAGES = [Stage("bias", tensor="bias"), Stage("gelu-erf"), Stage("residual", tensor="R")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("einsum", ["mk,nk->mn", "bmk,bkn->bmn"])
def test_outputs_are_the_rounded_float32(einsum: str, dtype: str, target: Any) -> None:
    lanes = target.lanes()
    wide = make_problem(einsum, stages=STAGES, constant=einsum[0] != "b")
    narrow = dataclasses.replace(wide, output_dtype=dtype)
    plain, rounding = (all_tails(problem, (3, 2 * lanes), target) for problem in (wide, narrow))
    for m, n, k in ((1, 1, 1), (7, 2 * lanes + 1, 5), (6, 2 * lanes, 4), (2, lanes - 1, 3)):
        extents = {"b": 2, "m": m, "n": n, "k": k}
        inputs = plain.random_inputs(extents)
        for category in range(len(TAILS)):
            exact = plain.run(inputs, extents, (category,))
            output = nan_filled(rounding.output_shape(extents), dtype)
            rounding.module["run"](*rounding.arguments(inputs), output, category)
            found = widened(output, dtype)
            assert np.isfinite(found).all()
            least = 2.0**-24 if dtype == "float16" else 0  # half's smallest
            assert (np.abs(found - exact) <= UNIT_ROUNDOFF[dtype] * np.abs(exact) + least).all()
