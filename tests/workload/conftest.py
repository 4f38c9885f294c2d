"""A valid spec as plain data, to be spoilt field by field."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

BASE: dict[str, Any] = {
    "name": "bert-dense",
    "op": {"einsum": "mk,nk->mn", "epilogue": []},
    "tensors": {
        "X": {"dims": "mk", "dtype": "float32"},
        "W": {"dims": "nk", "dtype": "float32", "constant": True},
    },
    "output": {"name": "Y", "dtype": "float32"},
    "accumulate": "float32",
    "shape_vars": {"T": {"min": 1, "max": 128}},
    "dims": {"m": "16*T", "n": 2304, "k": 768},
    "target": {"kind": "llvm"},
    "budget": {"trials": 128, "seconds": 300},
    "objective": {"binary_size": 0.02},
}
DELETE = object()


@pytest.fixture
def changed() -> Callable[..., dict[str, Any]]:
    """Return a function that replaces, adds or deletes fields by dotted path."""

    def change(changes: dict[str, Any] | None = None) -> dict[str, Any]:
        data = copy.deepcopy(BASE)
        for path, value in (changes or {}).items():
            *parents, last = path.split(".")
            at: Any = data
            for part in parents:
                at = at[part]
            if value is DELETE:
                del at[last]
            else:
                at[last] = copy.deepcopy(value)
        return data

    change.DELETE = DELETE  # type: ignore[attr-defined]
    return change
