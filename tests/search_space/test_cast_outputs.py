"""Outputs of half the size: rounded once, at write-back, whatever the tails."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from compiled import Compiled, all_tails, make_problem

from dietcode.search_space.stage import Stage
from dietcode.search_space.tails import TAILS
from dietcode.target.cpu import CpuTarget
from dietcode.workload.dtypes import UNIT_ROUNDOFF

STAGES = (Stage("bias", tensor="bias"), Stage("silu"), Stage("residual", tensor="R"))


@functools.cache
def kernel_of(einsum: str, dtype: str, target: CpuTarget) -> Compiled:
    problem = make_problem(einsum, stages=STAGES, constant=einsum[0] != "b")
    tile = 2, 2 * target.lanes()
    return all_tails(dataclasses.replace(problem, output_dtype=dtype), tile, target)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("einsum", ["mk,nk->mn", "bmk,bkn->bmn"])
def test_outputs_are_the_rounded_float32(einsum: str, dtype: str, target: CpuTarget) -> None:
    lanes = target.lanes()
    plain, rounding = (kernel_of(einsum, kind, target) for kind in ("float32", dtype))
    for m, n, k in ((1, 1, 1), (7, 2 * lanes + 1, 5), (6, 2 * lanes, 4), (2, lanes - 1, 3)):
        extents = {"b": 2, "m": m, "n": n, "k": k}
        inputs = plain.random_inputs(extents)
        for category in range(len(TAILS)):
            exact = plain.run(inputs, extents, (category,))
            found = rounding.run(inputs, extents, (category,))
            assert np.isfinite(found).all()
            least = 2.0**-24 if dtype == "float16" else 0  # half's smallest
            assert (np.abs(found - exact) <= UNIT_ROUNDOFF[dtype] * np.abs(exact) + least).all()
