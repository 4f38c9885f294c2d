"""Generated code against float64 NumPy, on real machine code for two vector units."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, cpu_target, make_problem
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.target.cpu import CpuTarget


def a_tile(target: CpuTarget) -> tuple[int, int]:
    """A small tile of two vectors whose rows are no power of two."""
    return 3, 2 * target.lanes()


@pytest.mark.parametrize("einsum", ["mk,nk->mn", "mk,kn->mn", "km,nk->mn", "km,kn->mn"])
def test_dense_in_all_layouts(einsum: str, target: CpuTarget) -> None:
    kernel = Compiled(make_problem(einsum, {"n": 37, "k": 19}), [a_tile(target)], target)
    for m in (1, 2, 3, 17, 48):
        kernel.check({"m": m, "n": 37, "k": 19})


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize(
    ("einsum", "fixed", "constant"),
    [
        ("mk,nk->nm", {"k": 11}, False),  # the first operand owns the columns
        ("mk,nk->nm", {"m": 29, "k": 11}, True),
        ("bmk,bnk->bmn", {}, False),
        ("bmk,bkn->bmn", {"k": 8}, False),
        ("bmk,bkn->mbn", {}, False),
        ("abmk,abnk->abmn", {"a": 2}, False),  # several batch letters, as heads of a transformer
        ("bmk,nk->bmn", {"n": 24}, True),  # batch letters that one operand has are rows
        ("mjk,njk->mn", {"k": 3}, False),  # several reduction letters
        ("mjk,nkj->mn", {}, True),  # in another order
        ("mk,abk->mab", {"b": 5}, True),  # several column letters
        ("mk,bak->mab", {}, False),  # in another order
        ("amk,nk->man", {}, True),  # rows in another order
        ("k,nk->n", {}, True),  # no rows
        ("xk,nk->xn", {"x": 1, "n": 1, "k": 1}, True),  # nothing but ones
    ],
)
def test_other_contractions(einsum: str, fixed: dict[str, int], constant: bool, target: CpuTarget) -> None:
    problem = make_problem(einsum, fixed, constant=constant)
    kernel = Compiled(problem, [a_tile(target)], target)
    rng = np.random.default_rng(0)
    letters = tuple(problem.extents)
    for trial in range(8):
        low, high = (1, 2) if trial == 0 else (1, 30 if len(letters) < 5 else 7)
        kernel.check({k: fixed.get(k, int(rng.integers(low, high))) for k in letters}, seed=trial)


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("dynamic", ["m", "n", "k", "mnk"])
@pytest.mark.parametrize("constant", [True, False])
def test_any_extent_may_be_dynamic(dynamic: str, constant: bool, target: CpuTarget) -> None:
    usual = {"m": 13, "n": 41, "k": 23}
    fixed = {letter: extent for letter, extent in usual.items() if letter not in dynamic}
    kernel = Compiled(make_problem("mk,nk->mn", fixed, constant=constant), [a_tile(target)], target)
    for extent in (1, 2, 7, 16, 31, 67):
        kernel.check(usual | dict.fromkeys(dynamic, extent))


@functools.cache
def any_shape_kernel(mcpu: str) -> Compiled:
    target = cpu_target(mcpu, 3)
    return Compiled(make_problem("bmk,bnk->bmn", constant=False), [(5, target.lanes())], target)


@given(st.integers(1, 5), st.integers(1, 23), st.integers(1, 70), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=examples(40), deadline=None)
def test_odd_shapes(b: int, m: int, n: int, k: int, seed: int) -> None:
    if not cpu_target("haswell").runs_here:
        pytest.skip("this CPU has no AVX2")
    any_shape_kernel("haswell").check({"b": b, "m": m, "n": n, "k": k}, seed)


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize(
    "tile", [(1, 1), (1, 2), (2, 1), (6, 2), (4, 3), (14, 1), (1, 7)], ids=lambda t: f"{t[0]}x{t[1]}vectors"
)
def test_every_tile_gives_the_same(tile: tuple[int, int], avx2: CpuTarget) -> None:
    rows, vectors = tile
    kernel = Compiled(make_problem("mk,nk->mn", {"n": 100, "k": 17}), [(rows, vectors * avx2.lanes())], avx2)
    for m in (1, rows, rows + 1, 53):
        kernel.check({"m": m, "n": 100, "k": 17})


@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("num_cores", [1, 4])
def test_any_number_of_tasks(num_cores: int, constant: bool) -> None:
    target = cpu_target("haswell", num_cores)
    kernel = Compiled(make_problem("mk,nk->mn", constant=constant), [(3, 8)], target)
    for extents in ({"m": 1, "n": 1, "k": 1}, {"m": 30, "n": 9, "k": 5}, {"m": 5, "n": 90, "k": 5}):
        kernel.check(extents)


def test_rows_in_several_blocks(avx2: CpuTarget) -> None:
    """With so small a cache that the panels pass by several times."""
    problem = make_problem("mk,nk->mn")
    kernel = Compiled(problem, [(3, 8)], CpuTarget(**(vars(avx2) | {"l2_bytes": 4096})))
    assert kernel.limits.l2_bytes == 4096
    kernel.check({"m": 97, "n": 33, "k": 64})


STAGES = {
    "bias": [Stage("bias", tensor="bias")],
    "relu": [Stage("relu")],
    "scale": [Stage("scale", value=0.125)],
    "residual": [Stage("residual", tensor="R")],
    "all": [
        Stage("scale", value=-1.5),
        Stage("bias", tensor="bias"),
        Stage("relu"),
        Stage("residual", tensor="R"),
        Stage("residual", tensor="R2"),
    ],
    "order": [Stage("relu"), Stage("bias", tensor="bias"), Stage("scale", value=3.0)],
}


@pytest.mark.parametrize("name", STAGES)
def test_epilogues(name: str, target: CpuTarget) -> None:
    problem = make_problem("mk,nk->mn", {"n": 50, "k": 9}, STAGES[name])
    kernel = Compiled(problem, [a_tile(target)], target)
    for m in (1, 3, 20):
        kernel.check({"m": m, "n": 50, "k": 9})


def test_epilogues_of_a_batch(target: CpuTarget) -> None:
    problem = make_problem("bmk,bkn->bmn", stages=STAGES["all"], constant=False)
    kernel = Compiled(problem, [a_tile(target)], target)
    kernel.check({"b": 3, "m": 7, "n": 45, "k": 5})


def test_a_residual_of_several_column_letters(avx2: CpuTarget) -> None:
    problem = make_problem("mk,abk->mab", stages=STAGES["residual"])
    Compiled(problem, [(3, 16)], avx2).check({"m": 5, "a": 7, "b": 5, "k": 6})


@pytest.mark.parametrize("name", ["relu", "all"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(name: str, value: float, target: CpuTarget) -> None:
    """Padding fetches clamped rows; nothing of them may reach another row."""
    kernel = Compiled(make_problem("mk,nk->mn", {"n": 37, "k": 6}, STAGES[name]), [a_tile(target)], target)
    for m in (4, 5, 6):
        extents = {"m": m, "n": 37, "k": 6}
        for row in (0, m // 2, m - 1):
            inputs = kernel.random_inputs(extents)
            clean = kernel.run(inputs, extents)
            inputs["X"][row, 3] = value
            output = kernel.run(inputs, extents)
            others = np.arange(m) != row
            np.testing.assert_array_equal(output[others], clean[others])
            with np.errstate(invalid="ignore"):
                expected = reference(kernel.problem, inputs)
            np.testing.assert_array_equal(np.isnan(output), np.isnan(expected))
            np.testing.assert_array_equal(np.isposinf(output), np.isposinf(expected))
            np.testing.assert_array_equal(np.isneginf(output), np.isneginf(expected))


def test_relu_passes_nan(avx2: CpuTarget) -> None:
    """``max`` would turn it into 0."""
    kernel = Compiled(make_problem("mk,nk->mn", {"n": 20, "k": 4}, STAGES["relu"]), [(2, 8)], avx2)
    inputs = kernel.random_inputs({"m": 3, "n": 20, "k": 4})
    inputs["X"][:, 0] = np.nan
    assert np.isnan(kernel.run(inputs, {"m": 3, "n": 20, "k": 4})).all()


def unaligned(array: Any) -> Any:
    """A copy that starts 4 bytes past a multiple of 64."""
    raw = np.empty(array.size + 32, np.float32)
    offset = (-raw.ctypes.data % 64) // 4 + 1
    copy = raw[offset : offset + array.size].reshape(array.shape)
    copy[...] = array
    assert copy.ctypes.data % 64 == 4
    return copy


@pytest.mark.parametrize("constant", [True, False])
def test_unaligned_buffers(constant: bool, target: CpuTarget) -> None:
    stages = [Stage("bias", tensor="bias"), Stage("residual", tensor="R")]
    problem = make_problem("mk,nk->mn", {"n": 64, "k": 16}, stages, constant)
    kernel = Compiled(problem, [a_tile(target)], target)
    extents = {"m": 7, "n": 64, "k": 16}
    inputs = kernel.random_inputs(extents)
    output = unaligned(np.full((7, 64), np.nan, np.float32))
    kernel.module["run"](*map(unaligned, kernel.arguments(inputs)), output)
    np.testing.assert_allclose(output, reference(problem, inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("einsum", "fixed"),
    [
        ("mk,nk->mn", {"n": 37}),
        ("mk,kn->mn", {}),
        ("km,nk->mn", {"m": 9}),
        ("bmk,bnk->bmn", {"b": 2}),
        ("bmk,bkn->bmn", {}),
        ("mjk,nkj->mn", {}),
        ("mk,abk->mab", {}),
    ],
)
def test_packing_follows_its_formula(einsum: str, fixed: dict[str, int], target: CpuTarget) -> None:
    from compiled import pack

    problem = make_problem(einsum, fixed)
    kernel = Compiled(problem, [a_tile(target)], target)
    lanes = kernel.limits.lanes
    for size in (1, 5, 16, 33):
        extents = {letter: fixed.get(letter, size if letter in "nkm" else 3) for letter in problem.extents}
        operand = kernel.random_inputs(extents)["W"]
        expected = pack(problem, operand, lanes)
        packed = np.full(expected.shape, np.nan, np.float32)
        kernel.module["pack"](operand, packed)
        np.testing.assert_array_equal(packed, expected)
        if einsum == "mk,nk->mn":
            for n in range(extents["n"]):
                np.testing.assert_array_equal(packed[0, n // lanes, :, n % lanes], operand[n])


def test_shapes_that_do_not_fit_are_refused(avx2: CpuTarget) -> None:
    kernel = Compiled(make_problem("mk,nk->mn", {"n": 20, "k": 4}), [(2, 8)], avx2)
    inputs = kernel.random_inputs({"m": 3, "n": 20, "k": 4})
    arguments = kernel.arguments(inputs)
    with pytest.raises(Exception, match=r"shape|Mismatch|expected"):
        kernel.module["run"](*arguments, np.zeros((4, 20), np.float32))
    with pytest.raises(Exception, match=r"shape|Mismatch|expected"):
        kernel.module["run"](arguments[0], arguments[1][:, 1:].copy(), np.zeros((3, 20), np.float32))
