"""The spec of a dense layer of sizes that a benchmark chooses."""

from __future__ import annotations

from typing import Any


def dense_spec(
    name: str, rows: tuple[str, int, int], columns: int, depth: int, **others: Any
) -> dict[str, Any]:
    """Return the spec of Y[rows, columns] = X[rows, depth] · W[columns, depth]ᵀ, with a constant weight.

    Parameters
    ----------
    rows : (str, int, int)
        A shape variable, its least and its greatest value.
    **others : object
        Fields of the spec, as ``budget``.
    """
    variable, least, most = rows
    return {
        "name": name,
        "op": {"einsum": "mk,nk->mn"},
        "tensors": {
            "X": {"dims": "mk", "dtype": "float32"},
            "W": {"dims": "nk", "dtype": "float32", "constant": True},
        },
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {variable: {"min": least, "max": most}},
        "dims": {"m": variable, "n": columns, "k": depth},
        **others,
    }
