"""Epilogue stages and conversions, compiled by themselves and compared with float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import cpu_target
from numpy.polynomial import Chebyshev, Polynomial, chebyshev
from scipy.special import log_ndtr, ndtr
from vector_functions import LIBM, compiled, module, run

from dietcode.search_space import epilogue
from dietcode.search_space.epilogue import apply, convert
from dietcode.search_space.stage import Stage
from dietcode.search_space.tir import script_of
from dietcode.workload.dtypes import STORAGE

LANES = (1, 8, 16)
GATES = ("silu", "gelu-erf", "gelu-tanh")
TOLERANCE = 4e-7  # of max(1, |x|)


def stages(*chain: Stage) -> Callable[[int], Callable[[Any, Any], Any]]:
    def of(lanes: int) -> Callable[[Any, Any], Any]:
        def emit(value: Any, read: Any) -> Any:
            for stage in chain:
                value = apply(stage, value, lanes, read)
            return value

        return emit

    return of


def gate(kind: str, x: Any) -> Any:
    """In float64, without cancellation far below zero."""
    x = np.asarray(x, np.float64)
    if kind == "gelu-erf":
        return x * ndtr(x)
    odds = x if kind == "silu" else 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-odds))


def dense() -> Any:
    """[-100, 100] in steps that each size of |x| needs, and what lies at the ends of float32."""
    rng = np.random.default_rng(0)
    near = np.concatenate([np.linspace(-100, 100, 200_001), np.linspace(-8, 8, 400_001)])
    sizes = np.exp2(rng.uniform(-149, 6.6, 200_000)) * rng.choice([-1, 1], 200_000)
    return np.concatenate([near, sizes]).astype(np.float32)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("lanes", LANES)
def test_gates_are_accurate(kind: str, lanes: int, target: Any) -> None:
    built = compiled(stages(Stage(kind))(lanes), lanes, target)
    x = dense()
    error = np.abs(run(built, x) - gate(kind, x)) / np.maximum(1, np.abs(x))
    assert error.max() <= TOLERANCE, f"{error.max():.3g} at {x[error.argmax()]}"


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("lanes", LANES)
def test_gates_at_the_limits(kind: str, lanes: int, target: Any) -> None:
    built = compiled(stages(Stage(kind))(lanes), lanes, target)
    largest, least = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
    rising = np.array([np.inf, largest, 1e30, 1e19, 1e10, 1e5, 128, 100], np.float32)
    assert np.array_equal(run(built, rising), rising)
    falling = run(built, -rising)
    assert (np.abs(falling) <= 1e-38).all() and not falling[:-1].any()
    assert np.isnan(run(built, np.array([np.nan, -np.nan], np.float32))).all()
    small = np.array([0.0, -0.0, least, -least, 3 * least, 1e-40, -1e-40, 1e-38, -1e-30], np.float32)
    found, half = run(built, small), small / 2
    assert np.array_equal(np.signbit(found), np.signbit(small))
    assert (np.abs(found - half) <= np.spacing(np.abs(half))).all()


OTHERS: dict[Stage, Callable[[Any], Any]] = {
    Stage("tanh"): np.tanh,
    Stage("sigmoid"): lambda x: np.exp(-np.logaddexp(0, -x)),
    Stage("hardsigmoid"): lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6,
    Stage("hardswish"): lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6,
    Stage("clip", value=(-0.5, 6.0)): lambda x: np.minimum(np.maximum(x, -0.5), 6),
}
_LEAST = 2.0**-125


@pytest.mark.parametrize("stage", OTHERS, ids=lambda stage: stage.kind)
@pytest.mark.parametrize("lanes", LANES)
def test_other_functions_are_accurate(stage: Stage, lanes: int, target: Any) -> None:
    """Relative to the exact result; NaN stays NaN, and what is infinite has its limit."""
    built = compiled(stages(stage)(lanes), lanes, target)
    x = np.concatenate([dense(), np.float32([1e30, -1e30, 3e38, -3e38])])
    right = OTHERS[stage](x.astype(np.float64))
    found = run(built, x)
    error = np.abs(found - right) / np.maximum(np.abs(right), _LEAST)
    error[np.abs(right) < _LEAST] = 0  # such results may be 0
    assert (np.abs(found[np.abs(right) < _LEAST]) < 2 * _LEAST).all()
    assert error.max() <= 1e-6, f"{error.max():.3g} at {x[error.argmax()]}"
    falling, rising = run(built, np.float32([-np.inf, np.inf]))
    assert falling == {"tanh": -1, "clip": -0.5}.get(stage.kind, 0)
    assert rising == {"hardswish": np.inf, "clip": 6}.get(stage.kind, 1)
    assert np.isnan(run(built, np.float32([np.nan, -np.nan]))).all()


@pytest.mark.parametrize("lanes", LANES)
def test_other_stages_and_their_order(lanes: int, target: Any) -> None:
    chain = (Stage("scale", value=-1.5), Stage("bias", "bias"), Stage("relu"), Stage("residual", "R"))
    built = compiled(stages(*chain)(lanes), lanes, target)
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((2, 1000), dtype=np.float32)
    expected = np.maximum(-1.5 * x.astype(np.float64) + r, 0) + r
    assert np.abs(run(built, x, r) - expected).max() < 1e-6
    relu = compiled(stages(Stage("relu"))(lanes), lanes, target)
    special = np.array([np.nan, np.inf, -np.inf, -1, 2], np.float32)
    assert np.array_equal(run(relu, special), [np.nan, np.inf, 0, 0, 2], equal_nan=True)


@pytest.mark.thorough
def test_many_stages_stay_small(avx2: Any) -> None:
    """Sixteen of each, which would be 2^16 copies were values not bound."""
    for stage in (Stage("relu"), *map(Stage, GATES), *OTHERS):
        chain = [stage] * 16
        built = compiled(stages(*chain)(8), 8, avx2)
        assert np.isfinite(run(built, np.linspace(-4, 4, 64, dtype=np.float32))).all()
        assert len(built.inspect_source("s")) < 200_000


@pytest.mark.parametrize("mcpu", ["haswell", "skylake-avx512"])
@pytest.mark.parametrize("stage", [*map(Stage, GATES), *OTHERS], ids=lambda stage: stage.kind)
@pytest.mark.parametrize(
    "lanes", [LANES[0], *(pytest.param(more, marks=pytest.mark.long) for more in LANES[1:])]
)
def test_no_call_of_libm_and_whole_vectors(stage: Stage, lanes: int, mcpu: str) -> None:
    built = compiled(stages(stage)(lanes), lanes, cpu_target(mcpu))
    text = built.inspect_source("s")
    assert not LIBM.search(text)
    if lanes > 1 and stage.kind in (*GATES, "tanh", "sigmoid"):
        assert "divps" in text and "divss" not in text


def test_the_erf_form_fits_again() -> None:
    """`_ODDS` is what its comment says."""
    nodes = np.cos(np.pi * (np.arange(3000) + 0.5) / 3000)
    square = epilogue._LARGEST_SQUARE["gelu-erf"]
    s = (nodes + 1) / 2 * square
    x = np.sqrt(s)
    wanted = -(log_ndtr(x) - log_ndtr(-x)) / x / np.log(2)
    weight = np.log(2) * s * ndtr(x) * ndtr(-x) / np.maximum(1, x)
    basis, level = chebyshev.chebvander(nodes, 6) * weight[:, None], np.ones(len(nodes))
    for _ in range(300):
        fit, *_ = np.linalg.lstsq(basis * np.sqrt(level)[:, None], wanted * weight * np.sqrt(level))
        error = np.abs(basis @ fit - wanted * weight)
        level *= np.maximum(error, 1e-4 * error.max())
        level /= level.sum()
    assert error.max() < 2.5e-8
    found = Chebyshev(fit, domain=[0, square]).convert(kind=Polynomial).coef
    assert np.allclose(found, epilogue._ODDS["gelu-erf"], rtol=1e-4)


def conversions() -> Any:
    """Values of every exponent and sign, all ties of both formats, and the special ones."""
    rng = np.random.default_rng(0)
    anything = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    ties = np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000  # halfway between bfloat16s
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = ((halves[1:] + halves[:-1]) / 2).astype(np.float32)
    special = [np.nan, -np.nan, np.inf, -np.inf, 65504, 65519.99, 65520, 3.4e38, -3.4e38, 0.0, -0.0, 1e-45]
    low_nan = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
    bits = [anything, ties, ties + 1, ties - 1, low_nan]
    floats = [middles, -middles, np.array(special, np.float32)]
    return np.concatenate([*(array.view(np.float32) for array in bits), *floats])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("dtype", "numpy"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_conversion_rounds_to_nearest_even(dtype: str, numpy: Any, lanes: int, target: Any) -> None:
    built = compiled(lambda value, read: convert(value, dtype, lanes), lanes, target, dtype)
    x = conversions()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(numpy)
    found = run(built, x, dtype=dtype).view(numpy)
    nan = np.isnan(x)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(found[~nan].view(np.uint16), expected[~nan].view(np.uint16))


@pytest.mark.parametrize(
    ("dtype", "instruction"), [("float16", "vcvtps2ph"), ("bfloat16", r"vpackusdw|vpmovdw")]
)
def test_conversion_is_vectorised(dtype: str, instruction: str) -> None:
    for mcpu, lanes in (("haswell", 8), ("skylake-avx512", 16)):
        built = compiled(lambda v, _, n=lanes: convert(v, dtype, n), lanes, cpu_target(mcpu), dtype)
        assert re.search(instruction, built.inspect_source("s"))


@pytest.mark.parametrize("name", ["silu", "gelu-erf", "bfloat16"])
def test_generated_code_is_as_it_was(name: str, golden: Any) -> None:
    if name in STORAGE:
        built = module(lambda value, _: convert(value, name, 8), 8, name)
    else:
        built = module(stages(Stage(name))(8), 8)
    golden(f"epilogue_{name}".replace("-", "_"), script_of(built) + "\n")
