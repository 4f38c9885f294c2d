"""Signed zeros, NaN, infinities, denormals, large and small numbers: every function beside eager PyTorch.

The relative error to float64 is at most 1e-6, or twice PyTorch's own; NaN, infinities and the sign of zeros
are PyTorch's. `ELSEWHERE` has where PyTorch's own result is not to be followed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from graph_runs import Functions, exported, imported, run_graph, torch
from kernel_runs import lowered, model_of

from dietcode.errors import ShapeError

F = torch.nn.functional
inf, nan = math.inf, math.nan
Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
L = torch.export.Dim("L", min=1, max=4096)
_LEAST = 3e-45  # two of the least steps
SIZES = (
    *(0.0, 1e-45, 1e-40, 1.17549435e-38, 1e-30, 1e-20, 1e-10, 1e-7, 1e-5, 1e-3, 0.1, 0.25, 0.3, 0.5, 0.7),
    *(0.9, 0.99, 1 - 2**-24, 1.0, 1 + 2**-23, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 5.5, 6.0, 9.0, 9.3, 10.0),
    *(
        17.0,
        20.0,
        30.0,
        64.0,
        80.0,
        87.0,
        88.5,
        90.0,
        104.0,
        128.0,
        65504.0,
        8388607.5,
        2.0**24,
        1e8,
        2.0**31,
    ),
    *(1e10, 2.0**63, 1e18, 2e19, 1e20, 1e30, 2e30, 3e38, 3.4028234663852886e38, inf),
)
NUMBERS = np.float32([sign * size for size in SIZES for sign in (1, -1)] + [nan])
FEW = np.float32(
    [s * n for n in (0.0, 1e-45, 1e-30, 0.3, 1.0, 3.0, 7.5, 1e20, 3e38, inf) for s in (1, -1)] + [nan]
)


def _powers(*exponents: float) -> dict[str, Function]:
    return {f"x**{one}": (lambda x, one=one: torch.pow(x, one)) for one in exponents}


def _named(owner: Any, text: str) -> dict[str, Function]:
    return {name: getattr(owner, name) for name in text.split()}


UNARY: Mapping[str, Function] = {
    **_named(
        torch, "neg abs sign sgn square relu sqrt rsqrt exp log tanh sigmoid erf erfc sin cos tan floor"
    ),
    **_named(torch, "ceil round trunc frac reciprocal exp2 expm1 log1p log2 log10 sinh cosh asin acos atan"),
    **_named(torch, "asinh acosh atanh erfinv lgamma isnan isinf isfinite signbit sinc logit nan_to_num"),
    **_named(torch, "logical_not"),
    **_named(F, "silu mish selu celu elu gelu relu6 hardtanh hardswish hardsigmoid leaky_relu softplus"),
    **_named(F, "logsigmoid softsign tanhshrink hardshrink"),
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu of 2": lambda x: F.elu(x, 2.0),
    "threshold": lambda x: F.threshold(x, 0.3, -1.0),
    "clamp": lambda x: torch.clamp(x, -1.5, 2.0),
    "clamp from 0": lambda x: torch.clamp(x, min=0.0),
    "clamp to 0": lambda x: torch.clamp(x, max=0.0),
    **_powers(0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.5),
    "2**x": lambda x: torch.pow(2.0, x),
    **{
        f"to {name}": (lambda x, name=name: x.to(getattr(torch, name))) for name in ("int8", "uint8", "int64")
    },
    "bool": lambda x: x.bool(),
    "where": lambda x: torch.where(x.bool(), x, 2.0),
    "x+0": lambda x: x + 0.0,
    "0-x": lambda x: 0 - x,
    "x*0": lambda x: x * 0.0,
    "0/x": lambda x: 0.0 / x,
    "x-x": lambda x: x - x,
    "ndtr": torch.special.ndtr,
}
BINARY: Mapping[str, Function] = {
    **_named(torch, "add sub mul div pow atan2 hypot copysign floor_divide logaddexp"),
    **_named(torch, "lt le gt ge eq ne logical_and logical_or logical_xor xlogy"),
    "quotient": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "prelu": lambda x, y: F.prelu(x, torch.tensor([0.25], dtype=x.dtype)),
}
ROWS: Mapping[str, Function] = {
    **{name: (lambda x, name=name: getattr(x, name)(-1)) for name in ("sum", "mean", "prod", "any", "all")},
    **{name: (lambda x, name=name: getattr(x, name)(-1)) for name in ("argmax", "argmin", "cumprod")},
    **{
        name: (lambda x, name=name: getattr(x, name)(-1)) for name in ("logsumexp", "logcumsumexp", "softmax")
    },
    "positions": lambda x: (x.cummax(-1)[1], x.cummin(-1)[1], x.max(-1)[1], x.sort(-1)[1], x.topk(2, -1)[1]),
    "log_softmax": lambda x: x.log_softmax(-1),
    "median": lambda x: x.median(-1),
    "norm": lambda x: (torch.linalg.vector_norm(x, 1, -1), torch.linalg.vector_norm(x, inf, -1)),
    "pooled": lambda x: F.max_pool2d(x[:, None, None], (1, 3), 1, (0, 1), return_indices=True)[1],
    "pooled apart": lambda x: F.max_pool2d(x[:, None, None], (1, 2), 1, return_indices=True)[1],
}
# Limits in the place of what overflows on the way; sums that begin with a number that PyTorch does not.
ELSEWHERE: Mapping[str, Callable[[Array], Array]] = {
    "silu": np.isneginf,
    "gelu": lambda x: (np.abs(x) > 1e38) | (x < -8),  # 1 + erf is 0 in float64 too
    "ndtr": lambda x: x < -8,
    "gelu of tanh": np.isneginf,
    "hardswish": lambda x: np.isfinite(x) & (x > 1e38),
    "lgamma": lambda x: x == 1,  # -0
    "log1p": lambda x: np.abs(x) < 1e-44,
}


def assert_close(name: str, found: Array, eager: Any, exact: Any, skipped: Array | bool = False) -> None:
    """Compare results; see the module's docstring."""
    wanted = eager.numpy()
    assert found.dtype == wanted.dtype, name
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        return
    right = exact.double().numpy()
    finite = np.isfinite(found) & np.isfinite(wanted)
    with np.errstate(all="ignore"):
        own, theirs = (np.abs(one.astype(np.float64) - right) for one in (found, wanted))
        wrong = finite & (own > np.maximum(1e-6 * np.abs(right), 2 * theirs) + _LEAST)
    wrong |= ~finite & ~((found == wanted) | (np.isnan(found) & np.isnan(wanted)))
    wrong |= (found == 0) & (wanted == 0) & (np.signbit(found) != np.signbit(wanted))
    wrong &= ~np.asarray(skipped)
    at = np.argwhere(wrong)[:5]
    assert not len(at), [(name, one, found[tuple(one)], wanted[tuple(one)]) for one in at]


def compare(functions: Mapping[str, Function], *args: Any) -> None:
    """Compare what the graph of many functions gives on the host."""
    module = Functions(list(functions.values()))
    graph, weights = imported(exported(module, tuple(one[:9] for one in args), (({0: L},) * len(args),)))
    found = iter(
        run_graph(graph, weights, dict(zip(graph.inputs, (one.numpy() for one in args), strict=True)))
    )
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        for name, function in functions.items():
            skipped = ELSEWHERE[name](args[0].numpy()) if name in ELSEWHERE else False
            exact = leaves(function(*(one.double() for one in args)))
            for eager, right in zip(leaves(function(*args)), exact, strict=True):
                assert_close(name, next(found), eager, right, skipped)


def test_functions_of_one_number() -> None:
    compare(UNARY, torch.from_numpy(np.resize(NUMBERS, (16, 8))))


def test_functions_of_two_numbers() -> None:
    x, y = (torch.from_numpy(one.copy()) for one in np.meshgrid(NUMBERS, NUMBERS))
    compare(BINARY, x, y)


def test_remainders() -> None:
    """PyTorch's own are NaN where a quotient overflows."""
    size = np.abs(NUMBERS)
    some = NUMBERS[((size > 1e-11) & (size < 1e19)) | ~np.isfinite(NUMBERS) | (size == 0)]
    x, y = (torch.from_numpy(one.copy()) for one in np.meshgrid(some, some))
    compare(_named(torch, "remainder fmod"), x, y)


def test_functions_of_rows() -> None:
    """Of three numbers each, all triples of some; which of +0 and -0 an extreme is, is not told."""
    compare(ROWS, torch.from_numpy(np.array(list(itertools.product(FEW[::2], FEW, FEW[::3])), np.float32)))


def test_sums_of_many_and_variances_of_large_numbers() -> None:
    """Running sums are added in float64, and a variance does not see how large the mean is."""
    rows = torch.full((4, 30000), 0.1)
    rows[1:] = torch.randn(3, 30000) + torch.tensor([[1e3], [1e6], [-3e5]])
    compare({"cumsum": lambda x: x.cumsum(-1), "var": lambda x: x.var(-1), "std": lambda x: x.std(-1)}, rows)


WHOLE: Mapping[str, Function] = {
    "quotients": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "by a number": lambda x, y: torch.div(x, -3, rounding_mode="trunc") + torch.fmod(x, -3),
    "of a number": lambda x, y: torch.fmod(torch.full_like(y, 7), y),
    **_named(torch, "fmod remainder floor_divide"),
    "signs": lambda x, y: (x.abs(), x.sign(), -x, x.trunc(), torch.isinf(x), torch.signbit(x)),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_whole_numbers(dtype: str) -> None:
    """The least has no absolute value."""
    limits = np.iinfo(dtype)
    numbers = [n for n in (limits.min, limits.min + 1, -7, -2, -1, 0, 1, 2, 3, limits.max) if limits.min <= n]
    pairs = [(a, b) for a in numbers for b in numbers if b and (a, b) != (limits.min, -1)]
    x, y = (torch.tensor(one, dtype=getattr(torch, dtype)) for one in zip(*pairs, strict=True))
    functions = {name: one for name, one in WHOLE.items() if dtype != "uint8" or name not in ("by a number",)}
    compare(functions, x, y)


@pytest.mark.parametrize("name", ["quotients", "fmod", "remainder", "floor_divide"])
def test_whole_numbers_are_not_divided_by_0(name: str) -> None:
    x = torch.arange(1, 10)
    graph, weights = imported(exported(Functions([WHOLE[name]]), (x, x.clone()), (({0: L}, {0: L}),)))
    given = dict(zip(graph.inputs, (x.numpy(), np.zeros_like(x)), strict=True))
    with pytest.raises(ShapeError, match="divided by 0"):
        run_graph(graph, weights, given)


class _Masked(torch.nn.Module):
    """Attention spelled out, with a number for hidden scores, and NaN made 0 or kept."""

    def __init__(self, hidden: float, guarded: bool) -> None:
        super().__init__()
        self.hidden, self.guarded = hidden, guarded

    def forward(self, q: Any, k: Any, keep: Any) -> Any:
        scores = (q @ k.transpose(1, 2)).masked_fill(~keep[:, None], self.hidden)
        weights = torch.softmax(scores, -1)
        return (torch.where(weights.isnan(), 0.0, weights) if self.guarded else weights) @ k


@pytest.mark.parametrize("hidden", [-inf, -3.4028234663852886e38])
@pytest.mark.parametrize("guarded", [False, True])
def test_attention_keeps_what_rows_without_keys_give(hidden: float, guarded: bool) -> None:
    module = _Masked(hidden, guarded)
    args = (torch.randn(2, 4, 8), torch.randn(2, 5, 8), torch.tensor([[True] * 3 + [False] * 2, [False] * 5]))
    batch, keys = torch.export.Dim("B", min=1, max=3), torch.export.Dim("S", min=1, max=9)
    shapes = ({0: batch}, {0: batch, 1: keys}, {0: batch, 1: keys})
    graph, weights = imported(exported(module, args, shapes))
    made = lowered(graph)
    assert not any("softmax" in str(step.get("host")) for step in made.description["steps"])
    assert ("masked_rows" in str(made.specs)) != guarded
    wanted = module(*args).numpy()
    (found,) = run_graph(graph, weights, dict(zip(graph.inputs, (one.numpy() for one in args), strict=True)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    if not np.isnan(wanted).any():  # the stand-in for kernels is PyTorch's attention, which has no NaN
        np.testing.assert_allclose(model_of(made, weights)(*args), wanted, rtol=1e-5, atol=1e-6)
