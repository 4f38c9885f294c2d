"""Functions of elements, comparisons and casts: imported graphs give what eager PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import assert_functions, torch

F = torch.nn.functional
L = torch.export.Dim("L", min=1, max=64)
Function = Callable[..., Any]


def _floats(size: int, num: int = 2) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return tuple(torch.randn(size, 5) * 2 for _ in range(num))


def _positive(size: int) -> tuple[Any, ...]:
    return tuple(one.abs() + 0.1 for one in _floats(size))


def _whole(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return torch.randint(-9, 10, (size, 5)), torch.randint(1, 4, (size, 5))


def _truths(size: int) -> tuple[Any, ...]:
    return tuple(one > 0 for one in _floats(size))


FLOATS: dict[str, list[Function]] = {
    "activations": [
        lambda x, y: F.relu(x),
        lambda x, y: F.silu(x),
        lambda x, y: F.gelu(x),
        lambda x, y: F.gelu(x, approximate="tanh"),
        lambda x, y: F.relu6(x),
        lambda x, y: F.hardtanh(x, -0.5, 0.7),
        lambda x, y: F.hardsigmoid(x),
        lambda x, y: F.hardswish(x),
        lambda x, y: F.leaky_relu(x, 0.2),
        lambda x, y: F.elu(x, 0.7),
        lambda x, y: F.selu(x),
        lambda x, y: F.celu(x, 1.3),
        lambda x, y: F.softplus(x),
        lambda x, y: F.softplus(x, beta=2, threshold=1),
        lambda x, y: F.softplus(x, threshold=-1),
        lambda x, y: F.softplus(x * 20, beta=0.5),
        lambda x, y: F.mish(x),
        lambda x, y: F.logsigmoid(x),
        lambda x, y: F.glu(torch.cat([x, y], 1), 1),
        lambda x, y: F.softsign(x),
        lambda x, y: F.tanhshrink(x),
        lambda x, y: F.threshold(x, 0.3, -1.0),
    ],
    "functions": [
        lambda x, y: torch.tanh(x),
        lambda x, y: torch.sigmoid(x),
        lambda x, y: torch.exp(x),
        lambda x, y: torch.neg(x),
        lambda x, y: -x.abs(),
        lambda x, y: torch.sin(x),
        lambda x, y: torch.cos(x),
        lambda x, y: torch.erf(x),
        lambda x, y: torch.special.erf(x),
        lambda x, y: torch.floor(x) + torch.ceil(y),
        lambda x, y: torch.round(x * 2),
        lambda x, y: torch.round(x, decimals=2) + (y * 1000).round(decimals=-1) + y.round(decimals=0),
        lambda x, y: torch.square(x),
        lambda x, y: torch.sign(x) - torch.sgn(y),
        lambda x, y: torch.expm1(x),
        lambda x, y: torch.trunc(x),
        lambda x, y: torch.tan(x * 0.1),
        lambda x, y: torch.asinh(x) + torch.acosh(y.abs() + 1),
        lambda x, y: torch.atanh(torch.tanh(x) * 0.9),
        lambda x, y: torch.copysign(x, y) + torch.copysign(y, -0.0),
        lambda x, y: torch.signbit(torch.copysign(torch.zeros_like(x), y)),
        lambda x, y: torch.ldexp(x, torch.tensor([-3])),
    ],
    "arithmetic": [
        lambda x, y: x + y,
        lambda x, y: x - 1.5,
        lambda x, y: 2 - x,
        lambda x, y: torch.sub(x, y, alpha=3),
        lambda x, y: torch.add(x, y, alpha=0.5),
        lambda x, y: torch.rsub(x, y, alpha=2),
        lambda x, y: x * y * 3,
        lambda x, y: x / (y.abs() + 1),
        lambda x, y: x // 0.7,
        lambda x, y: torch.div(x, 3, rounding_mode="floor"),
        lambda x, y: torch.div(x, 3, rounding_mode=None),
        lambda x, y: torch.div(x, 0.7, rounding_mode="trunc"),
        lambda x, y: x % 1.5,
        lambda x, y: torch.maximum(x, y) + torch.minimum(x, y * 2),
        torch.max,
        lambda x, y: torch.fmod(x, 1.5),
        lambda x, y: torch.fmod(x, y.abs() + 0.5),
        lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: torch.addcmul(x, x, y, value=0.5),
        lambda x, y: torch.addcdiv(x, x, y.abs() + 1, value=0.5),
        lambda x, y: x.T @ x + x.mean(),
    ],
    "powers": [
        lambda x, y: x**2,
        lambda x, y: x**3,
        lambda x, y: x**1,
        lambda x, y: x**4,
        lambda x, y: 2**x,
        lambda x, y: 1.5 ** x.long(),
        lambda x, y: (x.abs() + 1) ** y,
    ],
    "bounds": [
        lambda x, y: x.clamp(-0.5, 0.5),
        lambda x, y: x.clamp(min=0.1),
        lambda x, y: x.clamp(max=y),
        lambda x, y: torch.clamp_min(x, 0.2),
        lambda x, y: torch.clamp_max(x, 0.2),
        lambda x, y: torch.clamp(x, y, y + 1),
        lambda x, y: torch.clip(x, 0, 1),
    ],
    "choices": [
        lambda x, y: torch.where(x > 0, x, y),
        lambda x, y: torch.where(x > y, x, 0.0),
        lambda x, y: torch.where(x > 0, 1.0, y),
        lambda x, y: torch.where(x > 0, 1, 0),
        lambda x, y: x.masked_fill(y > 0, float("-inf")),
        lambda x, y: x.masked_fill(y > 0, torch.tensor(3.0)),
        lambda x, y: (x / torch.relu(x)).isnan(),
        lambda x, y: torch.isinf(x / torch.relu(y)),
        lambda x, y: torch.nan_to_num(x / torch.relu(x), 0.5, 1.0, -1.0),
        torch.heaviside,
    ],
    "comparisons": [
        lambda x, y: x < y,
        lambda x, y: x <= 0,
        lambda x, y: x > y,
        lambda x, y: x >= 0.25,
        lambda x, y: x == y,
        lambda x, y: x != 0,
        lambda x, y: x != y.relu(),
        lambda x, y: x.long() > 0.5,
        lambda x, y: x.long() == y.round(),
    ],
    "casts": [
        lambda x, y: x.long() + y.int(),
        lambda x, y: x.to(torch.float64) + y,
        lambda x, y: x.long() * 0.5,
        lambda x, y: (x > 0).float() * y,
        lambda x, y: (x > 0) + (y > 0).long(),
        lambda x, y: x.to(torch.int8),
        lambda x, y: x.bool(),
        lambda x, y: x.type_as(y) + x.contiguous().clone(),
        lambda x, y: x.double().to(y),
        lambda x, y: F.dropout(x, 0.5, training=False) + F.alpha_dropout(x, 0.1, training=False),
    ],
}


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str) -> None:
    assert_functions(FLOATS[name], _floats, [{0: L}, {0: L}])


POSITIVE: list[Function] = [
    lambda x, y: torch.log(x),
    lambda x, y: torch.sqrt(x),
    lambda x, y: torch.rsqrt(x),
    lambda x, y: torch.log1p(x),
    lambda x, y: torch.log2(x) + torch.log10(y),
    lambda x, y: torch.reciprocal(x),
    lambda x, y: x**0.5 + y**-0.5,
    lambda x, y: x**-1 + x**1.7,
    lambda x, y: x**y,
]


@pytest.mark.long
def test_functions_of_positive_numbers() -> None:
    assert_functions(POSITIVE, _positive, [{0: L}, {0: L}])


WHOLE: list[Function] = [
    lambda x, y: x + y * 2,
    lambda x, y: x // y,
    lambda x, y: x % y,
    lambda x, y: x // 2,
    lambda x, y: torch.div(x, 4, rounding_mode="floor"),
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda x, y: x / y,
    lambda x, y: x**2,
    lambda x, y: x.abs() - 1,
    lambda x, y: x.clamp(0, 5),
    lambda x, y: torch.sin(x),
    lambda x, y: torch.exp(y) + 1.0 / y,
    lambda x, y: torch.sqrt(y) + torch.rsqrt(y),
    lambda x, y: x * 1.5,
    lambda x, y: 3 - x,
    lambda x, y: torch.where(x > 0, x, 0),
    lambda x, y: x.masked_fill(x < 0, -1),
    lambda x, y: torch.max(x, y).int(),
    lambda x, y: torch.log1p(y) + torch.expm1(y),
    lambda x, y: torch.sigmoid(x) + torch.tanh(y),
]


BITS: list[Function] = [
    lambda x, y: x & y,
    lambda x, y: x | y.int(),
    lambda x, y: x ^ 5,
    lambda x, y: ~x,
    lambda x, y: x << (y % 7),
    lambda x, y: x >> (y % 7),
    lambda x, y: (x & 255).to(torch.uint8) | 3,
    lambda x, y: ~(x & 255).to(torch.uint8),
]


def test_bits_of_whole_numbers() -> None:
    assert_functions(BITS, _whole, [{0: L}, {0: L}])


def test_whole_numbers() -> None:
    assert_functions(WHOLE, _whole, [{0: L}, {0: L}])


TRUTHS: list[Function] = [
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
    lambda a, b: ~a,
    torch.logical_and,
    lambda a, b: torch.logical_or(a.long(), b.float()),
    lambda a, b: torch.logical_xor(a, b.int()),
    lambda a, b: torch.logical_not(a),
    lambda a, b: torch.logical_not(a.float()),
    lambda a, b: a & True,
    lambda a, b: a == b,
    lambda a, b: a * b,
    lambda a, b: a.any() | b.all(1, keepdim=True),
    lambda a, b: a.sum() + b.long().cumsum(1),
]


def test_truth_values() -> None:
    assert_functions(TRUTHS, _truths, [{0: L}, {0: L}])


def test_prelu() -> None:
    torch.manual_seed(0)
    flat, channels = torch.nn.PReLU(), torch.nn.PReLU(4)
    torch.nn.init.uniform_(channels.weight)
    assert_functions([flat, channels], lambda size: (torch.randn(size, 4, 3),), [{0: L}])
