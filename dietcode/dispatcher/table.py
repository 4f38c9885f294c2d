"""The assignment in readable form: runs of one shape variable, or a row for each instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

MAX_ROWS = 4096


def dispatch_table(
    variables: Sequence[str],
    bindings: ArrayLike,
    assignment: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    max_rows: int = MAX_ROWS,
) -> dict[str, Any]:
    """Return the assignment as compact JSON-able data.

    ::

        {"variables": ["T"], "num_rows": 2, "truncated": False,
         "rows": [{"T": [1, 16], "category": 0}, {"T": [17, 128], "category": 1}]}
        {"variables": ["I", "T"], …, "rows": [{"I": 768, "T": 1, "category": 0}, …]}

    Parameters
    ----------
    variables : sequence of str
        One for each column of `bindings`.
    bindings : int64 [num_instances, num_variables]
    assignment : int64 [num_instances]
    names : sequence of str or None
        A name for each category, added to the rows as ``name``.
    max_rows : int
        Further rows are left out; ``truncated`` says so, and ``num_rows`` counts all.

    Raises
    ------
    ValueError
        Arrays that do not fit together.
    """
    points, given = np.asarray(bindings, dtype=np.int64), np.asarray(assignment, dtype=np.int64)
    if points.ndim != 2 or points.shape[1] != len(variables) or given.shape != (len(points),):
        raise ValueError(f"shapes {points.shape} and {given.shape} do not fit {len(variables)} variables")
    order = np.lexsort(points.T[::-1]) if len(variables) else np.arange(len(points))
    points, given = points[order], given[order]
    if len(variables) == 1:
        rows = _runs(variables[0], points[:, 0].tolist(), given.tolist())
    else:
        rows = [
            dict(zip(variables, point, strict=True)) | {"category": category}
            for point, category in zip(points[:max_rows].tolist(), given[:max_rows].tolist(), strict=True)
        ]
    num_rows = len(rows) if len(variables) == 1 else len(points)
    if names is not None:
        rows = [row | {"name": names[row["category"]]} for row in rows]
    return {
        "variables": list(variables),
        "num_rows": num_rows,
        "truncated": num_rows > max_rows,
        "rows": rows[:max_rows],
    }


def _runs(variable: str, values: list[int], categories: list[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for value, category in zip(values, categories, strict=True):
        if rows and rows[-1]["category"] == category:
            rows[-1][variable][1] = value
        else:
            rows.append({variable: [value, value], "category": category})
    return rows
