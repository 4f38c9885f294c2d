"""A network with a layer that a small library computes, and what compares its results."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from needs import of_extra
from small_libraries import spec_data

import dietcode

torch = pytest.importorskip("torch", reason=of_extra("bench"))

LONG_ROWS = json.dumps(
    spec_data("long-rows", shape_vars={"M": {"min": 1, "max": 700}}, dims={"m": "M", "n": 100, "k": 37})
)
BIASED = json.dumps(
    spec_data(
        "biased",
        op={"einsum": "mk,nk->mn", "epilogue": ["bias"]},
        shape_vars={"M": {"min": 1, "max": 40}},
        dims={"m": "M", "n": 36, "k": 24},
    )
)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(37, 100)
        self.second = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(100, 5, bias=False))

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


def replaced_nets(library: Any) -> tuple[Any, Any]:
    """The same network twice, the first with a layer replaced."""
    plain = Net().eval()
    tuned = copy.deepcopy(plain)
    assert dietcode.nn.replace(tuned, library) == ["first"]
    return tuned, plain


def close(one: Any, other: Any) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-4, atol=1e-5))
