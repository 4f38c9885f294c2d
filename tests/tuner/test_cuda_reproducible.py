"""``objective.reproducible`` for GPUs: a row's bits are the same in every shape; kernels run on the CPU."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from made_gpu import TILES, gpu_spec, made_records
from needs import needs_nvrtc

from dietcode.dispatcher.orders import one_order
from dietcode.dispatcher.rule import Rule
from dietcode.measure.records import Records
from dietcode.runtime.manifest import DISPATCH
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import problem_from_spec
from dietcode.tuner.tune import make_library
from dietcode.workload.parse import spec_from_data

sys.path.append(str(Path(__file__).parents[1] / "search_space"))


SHAPES = {"shape_vars": {"T": {"min": 1, "max": 64}}}


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=8).flatmap(
        lambda orders: st.tuples(
            st.just(orders),
            arrays.arrays(np.float64, (5, len(orders)), elements=st.integers(0, 4).map(float)),
        )
    )
)
def test_one_order_is_the_best_of_all(case: tuple[list[str], Any]) -> None:
    orders, throughput = case
    weights = np.full(5, 0.2)
    mask = one_order(orders, throughput, weights)
    (kept,) = {order for order, is_kept in zip(orders, mask, strict=True) if is_kept}
    assert [order == kept for order in orders] == mask.tolist()

    def score(order: str) -> tuple[int, float]:
        best = throughput[:, [other == order for other in orders]].max(axis=1)
        return -int((best == 0).sum()), float(np.log(best[best > 0]).sum())

    assert score(kept) >= max(map(score, orders)) or np.isclose(score(kept)[1], max(map(score, orders))[1])


def records() -> Records:
    """The split one is best for few rows, and the other two for more, of which each has its turn."""
    found = made_records(**SHAPES)
    measured = found.measurements[TILES[0]]
    factors = [1 + 1.8 * (point["m"] - 16) / 112 for point in measured.points]
    secs = tuple(s * factor for s, factor in zip(measured.secs, factors, strict=True))
    found.measurements[TILES[0]] = replace(measured, secs=secs)
    return found


@pytest.mark.sampled(keep=1)
@needs_nvrtc
@pytest.mark.parametrize("is_asked", [True, False])
def test_the_bits_of_a_row_are_the_same_for_every_shape(is_asked: bool) -> None:
    from emulation import Emulated

    objective = {"binary_size": 0.0, "reproducible": is_asked}
    spec = spec_from_data(gpu_spec(objective=objective, **SHAPES))
    files = make_library(spec, known=records(), archs=("sm_90a",)).files
    dispatch = json.loads(files[DISPATCH])
    rule = Rule.from_json(dispatch["rule"])
    tiles = [CudaMicroKernel.from_json(tile) for tile in dispatch["categories"]]
    served = {t: tiles[int(rule.predict(np.array([[t]]))[0])] for t in (1, 3, 4, 47, 64)}
    assert len(set(served.values())) == (2 if is_asked else 3), "all categories have their turn"
    kernels = Emulated(problem_from_spec(spec), tiles)
    inputs = kernels.random_inputs({"m": 1024, "n": 64, "k": 48})

    def call(t: int) -> Any:
        part = inputs | {"X": inputs["X"][: 16 * t]}
        return kernels.run(served[t], part, {"m": 16 * t, "n": 64, "k": 48}).view(np.uint32)

    whole = call(64)
    same = [np.array_equal(call(t), whole[: 16 * t]) for t in served]
    assert all(same) == is_asked, "a split reduction adds in another order"
    assert {tile.splits for tile in served.values()} == ({1} if is_asked else {1, 2})


@needs_nvrtc
@pytest.mark.parametrize("splits", [1, 2])
def test_kernels_of_one_order_give_the_same_bits(splits: int) -> None:
    from compiled import make_problem
    from emulation import Emulated

    def made(**axes: Any) -> CudaMicroKernel:
        return CudaMicroKernel(**({"rows": 8, "columns": 16, "thread_rows": 2, "thread_columns": 2} | axes))

    def k_tile(other: int) -> int:
        return other if splits == 1 else 4

    tiles = [
        made(k_tile=4, splits=splits),
        made(k_tile=k_tile(8), splits=splits, stages=2, rows=16, thread_rows=4),
        made(k_tile=k_tile(16), splits=splits, tails="partition", columns=32),
        made(k_tile=4, splits=splits, tails="global"),
        made(k_tile=k_tile(8), splits=splits, tails="checked", row_vthreads=2),
    ]
    assert len({tile.sum_order for tile in tiles}) == 1
    kernels = Emulated(make_problem("mk,nk->mn", {"n": 20, "k": 27}), tiles)
    for rows in (1, 8, 19):
        extents = {"m": rows, "n": 20, "k": 27}
        inputs = kernels.random_inputs(extents)
        first, *others = (kernels.run(tile, inputs, extents).view(np.uint32) for tile in tiles)
        for tile, other in zip(tiles[1:], others, strict=True):
            np.testing.assert_array_equal(other, first, err_msg=tile.name)


def test_the_kernels_of_the_other_tests_add_in_several_orders() -> None:
    assert len({tile.sum_order for tile in TILES}) == 2
