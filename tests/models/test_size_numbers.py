"""Numbers that a model computes of sizes change with them, and are refused where only a constant is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import assert_same, exported, imported, torch

from dietcode.errors import ModelError
from dietcode.models.exporting import export

L = torch.export.Dim("L", min=4, max=64)
F = torch.nn.functional
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "quotient": lambda x: x * (1.0 / x.shape[0]),
    "powers": lambda x: x * (x.shape[0] ** -0.5) + x.shape[0] ** 0.5,
    "several": lambda x: x * ((x.shape[0] + 1) / 3 - 0.25 * x.shape[0]),
    "filled": lambda x: torch.full((x.shape[0],), x.shape[0] * 0.5) + torch.scalar_tensor(x.shape[0] * 0.25),
    "where": lambda x: x.masked_fill(x > 0, 1.0 / x.shape[0]),
    "bounds": lambda x: x.clamp(min=-1.0, max=x.shape[0] / 70),
    "scaled": lambda x: torch.add(x, x, alpha=1.0 / x.shape[0]),
    "swapped": lambda x: torch.rsub(x, x + 1, alpha=1.0 / x.shape[0]),
    "whole bounds": lambda x: (x * 20).clamp(0, x.shape[0]) + (x * 9).long().clamp(max=x.shape[0] // 9),
    "bounds of whole numbers": lambda x: (x * 9).long().clamp(0.5, 2.5),
    "whole scales": lambda x: torch.add(x, x, alpha=x.shape[0]) - torch.rsub(x, x + 1, alpha=x.shape[0]),
    "base": lambda x: torch.pow(x.shape[0], x),
    "distance": lambda x: x * abs(x.shape[0] - 30),
    "rounded": lambda x: (
        x[: math.ceil(x.shape[0] / 3)] * math.floor(x.shape[0] / 2) * math.trunc(x.shape[0] / 4)
    ),
    "powers of constants": lambda x: x * 2 ** x.shape[0] - x * (3 ** (x.shape[0] // 8) - 5),
    "bits": lambda x: x * (x.shape[0] & 5) + (x.shape[0] | 1) - (1 << x.shape[0]),
    "nearest": lambda x: x * round(x.shape[0] / 4) + round(x.shape[0] * 0.5) * x,
    "product": lambda x: torch.addmm(x, x, torch.ones(5, 5), beta=1.0 / x.shape[0], alpha=x.shape[0] / 2),
}


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """Return what the function does."""
        return self.function(x)


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_numbers_of_sizes(name: str) -> None:
    model = _Model(FUNCTIONS[name])
    program = exported(model, (torch.ones(9, 5),), ({0: L},))
    graph, weights = imported(program)
    for rows in (4, 9, 60):
        assert_same(model, graph, weights, (torch.randn(rows, 5),))


def test_a_size_that_is_no_extent() -> None:
    program = exported(_Model(lambda x: F.pad(x, (0, 2 ** x.shape[0]))), (torch.ones(4, 5),), ({0: L},))
    with pytest.raises(ModelError, match=r"a size of .*Pow.*\bL?.*; allowed: sizes by \+, -"):
        imported(program)


def test_where_only_constants_are_known() -> None:
    program = exported(_Model(lambda x: F.leaky_relu(x, 1.0 / x.shape[0])), (torch.ones(9, 5),), ({0: L},))
    with pytest.raises(
        ModelError, match=r"leaky_relu.*depends on sizes.*\(models/test_size_numbers.py:\d+\)"
    ):
        imported(program)


def _attend(x: Any, scale: Any) -> Any:
    x = x[None, None]
    return F.scaled_dot_product_attention(x, x, x, scale=scale)[0, 0]


@pytest.mark.parametrize("scale", [lambda n: n**-0.5, lambda n: (n + 1) / 70], ids=["power", "quotient"])
def test_the_scale_of_attention_may_follow_from_a_size(scale: Callable[[Any], Any]) -> None:
    model = _Model(lambda x: _attend(x, scale(x.shape[0]))).eval()
    graph, weights = imported(export(model, (torch.ones(9, 5),), dynamic_shapes=({0: L},)))
    for rows in (4, 9, 60):
        assert_same(model, graph, weights, (torch.randn(rows, 5),))


def test_roots_of_sizes() -> None:
    """Python's own function made constants of them."""
    model = _Model(lambda x: x / math.sqrt(x.shape[0]) + math.sqrt(x.shape[0] / 3) * math.sqrt(2)).eval()
    graph, weights = imported(export(model, (torch.ones(9, 5),), dynamic_shapes=({0: L},)))
    for rows in (4, 60):
        assert_same(model, graph, weights, (torch.randn(rows, 5),))


def test_numbers_that_would_become_constants_are_refused() -> None:
    model = _Model(lambda x: _attend(x, 1.0 / math.log(x.shape[0] + 1.0))).eval()
    before = F.scaled_dot_product_attention
    with pytest.raises(ModelError, match=r"becomes a constant \(models/test_size_numbers.py:\d+\); allowed"):
        export(model, (torch.ones(9, 5),), dynamic_shapes=({0: L},))
    assert F.scaled_dot_product_attention is before


def test_a_factor_whose_products_floats_round_both_ways_is_refused() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.interpolate(x[None], scale_factor=0.29)

    size = torch.export.Dim("L", min=4, max=500)
    program = export(Model().eval(), (torch.zeros(2, 9),), dynamic_shapes=({1: size},))
    with pytest.raises(ModelError, match=r"a size of 0.29 times one of 4…500, .*whole numbers, as size="):
        imported(program)
