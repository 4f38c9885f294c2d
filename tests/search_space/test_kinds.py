"""Any kind of problem, any shape, any axes of a micro-kernel: right, all alike to the bit, nothing leaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, cpu_target
from how_many import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import KERNELS, KINDS, TRIED, built, micro_kernels
from turns import TARGETS, units_of

from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.reference import reference
from dietcode.search_space.tails import TAILS
from dietcode.workload.dtypes import UNIT_ROUNDOFF

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# One, below and past vectors and tiles, primes, and whole tiles.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 21, 24, 31, 32, 33, 37, 48, 53, 64, 67)


@st.composite
def calls(draw: Any) -> tuple[str, str, dict[str, int]]:
    """A kind, a vector unit that this CPU has, and extents."""
    name = draw(st.sampled_from(TRIED))
    mcpus = units_of(list(KINDS).index(name))
    if not mcpus:
        pytest.skip("this CPU has no AVX2")
    mcpu = draw(st.sampled_from(mcpus))
    kind = KINDS[name]
    chosen = {
        letter: draw(st.sampled_from([size for size in SIZES if size <= kind.largest.get(letter, 67)]))
        for letter in kind.free
    }
    return name, mcpu, kind.complete(chosen)


def all_of(
    kernel: Compiled, inputs: dict[str, Any], extents: dict[str, int], spoil: bool = True
) -> list[Any]:
    """What each micro-kernel gives; what a call leaves in the workspaces is NaN beforehand."""
    arguments = kernel.arguments(inputs, extents)
    kept = [value.copy() for value in arguments]
    nan = [np.full_like(value, np.nan) for value in arguments]
    outputs = []
    for category in range(KERNELS):
        if spoil:
            kernel.call(nan, extents, (category,))
        outputs.append(kernel.call(arguments, extents, (category,)))
    for value, before in zip(arguments, kept, strict=True):
        np.testing.assert_array_equal(value, before)
    return outputs


def assert_same_bits(name: str, kernel: Compiled, outputs: list[Any], extents: dict[str, int]) -> None:
    names = [micro_kernel.name for micro_kernel in micro_kernels(name, kernel.limits)]
    for which, output in zip(names, outputs, strict=True):
        np.testing.assert_array_equal(
            output.view(np.uint32),
            outputs[0].view(np.uint32),
            err_msg=f"{name}: {which} and {names[0]} at {extents}",
        )


@given(calls(), st.integers(0, 1000))
@settings(SETTINGS, max_examples=examples(60))
def test_any_call(call: tuple[str, str, dict[str, int]], seed: int) -> None:
    name, mcpu, extents = call
    kernel = built(name, mcpu)
    inputs = kernel.random_inputs(extents, seed)
    outputs = all_of(kernel, inputs, extents)
    expected = reference(kernel.problem, inputs)
    scale = float(np.abs(expected).max()) + 1.0
    rounding = UNIT_ROUNDOFF[kernel.problem.output_dtype] if kernel.problem.output_dtype != "float32" else 0
    for output, micro_kernel in zip(outputs, micro_kernels(name, kernel.limits), strict=True):
        where = f"{name} by {micro_kernel.name} at {extents}"
        assert np.isfinite(output).all(), f"{where}: not all was written, or what does not exist was read"
        assert (np.abs(output - expected) <= 1e-5 * scale + rounding * np.abs(expected)).all(), where
    assert_same_bits(name, kernel, outputs, extents)


@given(calls(), st.data(), st.sampled_from([np.nan, np.inf, -np.inf]))
@settings(SETTINGS, max_examples=examples(60))
def test_what_is_not_finite_stays_where_it_belongs(
    call: tuple[str, str, dict[str, int]], data: st.DataObject, value: float
) -> None:
    """One element, of any input: only what it is summed into may change, in each way of computing it."""
    name, mcpu, extents = call
    kernel = built(name, mcpu)
    problem = kernel.problem
    gated = any(stage.kind not in {"bias", "residual", "relu", "scale"} for stage in problem.stages)
    # Whether a letter of one operand alone is summed before or after the product: ∞·(a + b) or ∞·a + ∞·b.
    gated |= any(
        (k in problem.role_indices("X")) != (k in problem.role_indices("W")) for k in problem.reduction
    )
    inputs = kernel.random_inputs(extents)
    clean = all_of(kernel, inputs, extents, spoil=False)
    before = reference(problem, inputs)
    tensor = data.draw(st.sampled_from(problem.inputs))
    place = data.draw(st.integers(0, inputs[tensor].size - 1))
    inputs[tensor].flat[place] = np.nan if gated else value
    with np.errstate(invalid="ignore"):
        expected = reference(problem, inputs)
    outputs = all_of(kernel, inputs, extents, spoil=False)
    others = expected == before
    for output in outputs:
        np.testing.assert_array_equal(np.isnan(output), np.isnan(expected))
        np.testing.assert_array_equal(np.isposinf(output), np.isposinf(expected))
        np.testing.assert_array_equal(np.isneginf(output), np.isneginf(expected))
        np.testing.assert_array_equal(output[others], clean[0][others])


def test_these_micro_kernels_are_of_all_axes() -> None:
    """Or the tests above and the guard pages would show less than they seem to."""
    windowed = set()
    for limits in (Limits.of(cpu_target(mcpu)) for mcpu in TARGETS):
        every = [micro_kernel for name in KINDS for micro_kernel in micro_kernels(name, limits)]
        narrow = {limits.lanes // 2, limits.lanes // 4} - {2}
        for tails in TAILS:
            tiles = [micro_kernel for micro_kernel in every if micro_kernel.tails == tails]
            assert all(any(getattr(tile, axis) for tile in tiles) for axis in ("gather", "direct", "k_tile"))
            assert {limits.lanes_of(tile) for tile in tiles} == {limits.lanes} | narrow
        windowed |= {micro_kernel.tails for micro_kernel in every if micro_kernel.window}
    assert windowed == set(TAILS) - {"global"}
