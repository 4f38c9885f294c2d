"""Logarithms, sines, cosines and rounding on one vector, beside float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import cpu_target
from vector_functions import LIBM, compiled, run

from dietcode.search_space.pointwise import pointwise
from dietcode.search_space.vectors import fused

NAMES = ("exp-of-negative", "log", "sin", "cos", "floor", "ceil", "round")
SPECIAL = np.float32([np.nan, np.inf, -np.inf, -1.0, -0.0, 0.0])


def of_vectors(name: str, lanes: int) -> Callable[[Any, Any], Any]:
    return lambda x, _: pointwise(name, [x], lanes, None, {})


@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_logarithms(lanes: int, target: Any) -> None:
    built = compiled(of_vectors("log", lanes), lanes, target)
    x = np.exp2(np.linspace(-149, 127.99, 200_003)).astype(np.float32)
    x = np.concatenate([x, np.linspace(0.5, 2, 100_001, dtype=np.float32), np.float32([3.4e38, 1e-45])])
    right = np.log(x.astype(np.float64))
    error = np.abs(run(built, x) - right) / np.maximum(np.abs(right), 2.0**-125)
    assert error.max() <= 3e-7, f"{error.max():.3g} at {x[error.argmax()]}"
    wanted = np.float32([np.nan, np.inf, np.nan, np.nan, -np.inf, -np.inf])
    np.testing.assert_array_equal(run(built, SPECIAL), wanted)


@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_exponentials_of_what_is_at_most_zero(lanes: int, fuses: bool, target: Any) -> None:
    """As softmax has them: exactly 1 at 0, so that a row's largest element is; 0 far below."""
    with fused(fuses):
        built = compiled(of_vectors("exp-of-negative", lanes), lanes, target)
    x = np.concatenate([-np.geomspace(1e-30, 86.6, 200_003), [-0.0]]).astype(np.float32)
    right = np.exp(x.astype(np.float64))
    error = np.abs(run(built, x) / right - 1)
    assert error.max() <= 4e-7, f"{error.max():.3g} at {x[error.argmax()]}"
    special = np.float32([0.0, -0.0, -87.9, -88.0, -1e30, -np.inf, np.nan])
    found = run(built, special)
    assert (found[:2] == 1).all() and found[2] < 2.0**-125
    np.testing.assert_array_equal(found[3:], np.float32([0, 0, 0, np.nan]))


@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("lanes", [1, 8])
def test_exponentials(lanes: int, fuses: bool, target: Any) -> None:
    with fused(fuses):
        built = compiled(of_vectors("exp", lanes), lanes, target)
    x = np.linspace(-86.6, 88.7, 400_001, dtype=np.float32)
    error = np.abs(run(built, x) / np.exp(x.astype(np.float64)) - 1)
    assert error.max() <= 4e-7, f"{error.max():.3g} at {x[error.argmax()]}"
    wanted = np.float32([1, 1, 0, 0, 0, np.inf, np.inf, np.inf, np.nan])
    found = run(built, np.float32([0.0, -0.0, -88.0, -1e30, -np.inf, 88.8, 1e30, np.inf, np.nan]))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_waves(name: str, lanes: int, target: Any) -> None:
    built = compiled(of_vectors(name, lanes), lanes, target)
    near = np.linspace(-40, 40, 200_003, dtype=np.float32)
    far = np.geomspace(40, 1e8, 100_001).astype(np.float32)
    x = np.concatenate([near, far, -far])
    error = np.abs(run(built, x) - getattr(np, name)(x.astype(np.float64)))
    assert error.max() <= 2e-7, f"{error.max():.3g} at {x[error.argmax()]}"
    assert np.abs(run(built, np.float32([1e12, -1e30, 3e38]))).max() <= 1
    assert np.isnan(run(built, SPECIAL[:3])).all()


@pytest.mark.parametrize("name", ["floor", "ceil", "round"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_whole_numbers(name: str, lanes: int, target: Any) -> None:
    built = compiled(of_vectors(name, lanes), lanes, target)
    x = np.concatenate([np.arange(-20, 20, 0.25), [1e9, -1e20, 2.0**23 - 0.5, -0.4]]).astype(np.float32)
    x = np.concatenate([x, SPECIAL])
    np.testing.assert_array_equal(run(built, x), {"round": np.rint}.get(name, getattr(np, name))(x))


@pytest.mark.parametrize("mcpu", ["haswell", "skylake-avx512"])
@pytest.mark.parametrize("name", NAMES)
def test_no_call_of_libm(name: str, mcpu: str) -> None:
    built = compiled(of_vectors(name, 8), 8, cpu_target(mcpu))
    assert not LIBM.search(built.inspect_source("s"))
