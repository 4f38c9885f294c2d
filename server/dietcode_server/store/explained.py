"""The rows that say which micro-kernel of a library serves what, and why."""

from __future__ import annotations

from typing import Any

from dietcode.runtime.manifest import DISPATCH, REPORT
from dietcode_server.store.tables import CategoryRow, DispatchRow, MicroKernelRow


def explained_rows(
    manifest: dict[str, Any], report: dict[str, Any], dispatch: dict[str, Any]
) -> dict[type[Any], list[dict[str, Any]]]:
    """Return the rows by table; a table comes after those it refers to.

    Raises
    ------
    KeyError, TypeError, ValueError
        The files lack something, or do not fit each other.
    """
    kernels = [
        {
            "micro_kernel": row["micro_kernel"],
            "provenance": row["provenance"],
            "category": row["category"],
            "object_bytes": row["bytes"],
            "instances_preferring": row["instances_preferring"],
            "instances_served": row["instances_served"],
            "f_local": row["f_local"],
        }
        for row in report["micro_kernels"]
    ]
    categories = [
        {"category": row["category"], "micro_kernel": row["micro_kernel"]} for row in dispatch["categories"]
    ]
    known = {row["micro_kernel"] for row in kernels}
    for category in categories:
        if category["micro_kernel"] not in known:
            raise ValueError(f"{REPORT} does not describe micro-kernel {category['micro_kernel']!r}")
    numbers = {category["category"] for category in categories}
    for row in report["instances"]:
        if row["category"] not in numbers:
            raise ValueError(f"{DISPATCH} has no category {row['category']!r}, which {REPORT} names")
    first = manifest["variable_order"][0]
    instances = [_instance(position, row, first) for position, row in enumerate(report["instances"])]
    return {MicroKernelRow: kernels, CategoryRow: categories, DispatchRow: instances}


def _instance(position: int, row: dict[str, Any], first_variable: str) -> dict[str, Any]:
    copied = ("shape_vars", "weight", "category", "f_local", "f_spatial", "f_pad", "predicted_gflops")
    return {
        "position": position,
        **{name: row[name] for name in copied},
        "first_variable": row["shape_vars"][first_variable],
        "best_micro_kernel": row["best_micro_kernel"],
        "best_predicted_gflops": row["best_predicted_gflops"],
    }
