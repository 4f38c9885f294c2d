"""Tables of a result: its instances and its micro-kernels, a page at a time, sorted here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Query

from dietcode_server.dashboard.reports import FloatArray, IntArray, Report
from dietcode_server.store.tables import ComparisonRow

ROWS = 25
KERNEL_ROWS = 50
Sort = Annotated[str | None, Query(max_length=80)]
Order = Annotated[Literal["asc", "desc"], Query()]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000, alias="page")]
_AXES = ("steps", "gather", "direct", "window", "keep", "serial", "stream", "overlap", "fetch")
_LOOPS = ("batch", "rows", "columns", "reduction")
_CUDA_AXES = ("row_vthreads", "column_vthreads", "stages", "splits")


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    name : str
        In the address; also what rows are sorted by.
    title, meaning : str
        Its head, and what that stands for.
    form : str
        How a figure is written, as `format` takes it; empty for text.
    """

    name: str
    title: str
    meaning: str = ""
    form: str = ""

    def text(self, value: Any) -> str:
        """A cell; empty where nothing is known."""
        return "" if value is None else format(value, self.form)


@dataclass(frozen=True)
class Table:
    """A page of a table.

    Attributes
    ----------
    sort, order : str
        Column, and asc or desc.
    page, num_pages : int
        From 1.
    rows : list of dict
        By the names of the columns.
    """

    columns: list[Column]
    sort: str
    order: str
    page: int
    num_pages: int
    num_rows: int
    rows: list[dict[str, Any]] = field(default_factory=list)


_FIGURES = [
    Column("predicted", "predicted", "GFLOP/s that the cost model expects", ".1f"),
    Column("measured", "measured", "GFLOP/s of the built library", ".1f"),
    Column("vendor", "vendor", "GFLOP/s of the vendor's fastest kernel, in the same run", ".1f"),
    Column("ratio", "of vendor", "measured over the vendor's; none where something disturbed it", ".2f"),
    Column(
        "roof",
        "roofline",
        "GFLOP/s that the machine allowed at most: its peak, or reading the tensors once",
        ".1f",
    ),
    Column("of_roof", "of roofline", "measured over the roofline; none where something disturbed it", ".0%"),
    Column("spread", "spread", "the largest median of repeats over their fastest: 1 where all agree", ".2f"),
    Column("f_local", "f_local", "GFLOP/s of full waves of whole tiles", ".1f"),
    Column("f_spatial", "f_spatial", "what is left by waves that are not full", ".3f"),
    Column("f_pad", "f_pad", "the share of the computed work that is asked for", ".3f"),
    Column("padding", "padding", "computed over asked for, 1 / f_pad", ".3f"),
    Column("waves", "waves", "tiles over the slots P that run at a time", ".2f"),
    Column("loss", "loss", "given up against the best of all measured micro-kernels", ".2%"),
]


def instance_table(
    report: Report,
    compared: Sequence[ComparisonRow],
    *,
    sort: str | None,
    order: str,
    page: int,
    category: int | None = None,
) -> Table:
    """Return a page of the table of instances.

    Parameters
    ----------
    sort : str or None
        A column's name; anything else means the order of the report.
    category : int or None
        Only those that it serves.
    """
    figures = dict(report.columns)
    figures["measured"], figures["vendor"] = measured(report, compared)
    figures["ratio"], figures["spread"], disturbed = _trust(report, compared)
    figures["roof"], figures["of_roof"] = _roofs(report, compared)
    variables = [Column(f"var-{name}", name, form="d") for name in report.variables]
    shown = [c for c in _FIGURES if np.isfinite(figures[c.name]).any()]
    columns = [*variables, Column("category", "category", "what the dispatch rule answers", "d"), *shown]
    columns.insert(len(variables) + 1, Column("kernel", "micro-kernel"))
    paths = {row.position: row.vendor for row in compared if row.vendor}
    if paths:
        after = [column.name for column in columns].index("vendor") + 1
        columns.insert(after, Column("path", "path", "which of the vendor's kernels that is"))
    if disturbed:
        columns.append(Column("disturbed", "disturbed", "what else ran while it was measured"))
    if (report.runner_up >= 0).any():
        columns.append(Column("runner_up", "next best", "the best micro-kernel beside it, GFLOP/s"))
    keys: dict[str, Any] = {f"var-{name}": report.shapes[:, at] for at, name in enumerate(report.variables)}
    keys |= {name: figures[name] for name in (c.name for c in shown)} | {"category": report.category}
    keys |= {"kernel": report.serves[report.category], "runner_up": figures["other"]}
    rows = np.arange(len(report)) if category is None else np.flatnonzero(report.category == category)
    at, page, num_pages = page_of(rows, keys.get(sort or ""), order, page, ROWS)
    table = Table(columns, sort if sort in keys else "", order, page, num_pages, len(rows))
    table.rows.extend(
        _instance(report, figures, int(position))
        | {"disturbed": disturbed.get(int(position)), "path": paths.get(int(position))}
        for position in at
    )
    return table


def measured(report: Report, compared: Sequence[ComparisonRow]) -> tuple[FloatArray, FloatArray]:
    """GFLOP/s of the library, and of the vendor's fastest kernel; [num_instances], NaN where not measured."""
    ours, vendors = (np.full(len(report), np.nan) for _ in range(2))
    for row in compared:
        if row.position < len(report):
            ours[row.position] = row.measured_gflops
            vendors[row.position] = math.nan if row.vendor_gflops is None else row.vendor_gflops
    return ours, vendors


def _trust(
    report: Report, compared: Sequence[ComparisonRow]
) -> tuple[FloatArray, FloatArray, dict[int, str]]:
    """Return the ratio to the vendor and the spread of repeats, NaN where there is none, and `disturbed`."""
    ratios, spreads = (np.full(len(report), np.nan) for _ in range(2))
    found = {row.position: row.disturbed for row in compared if row.disturbed}
    for row in compared:
        if row.position < len(report):
            spreads[row.position] = math.nan if row.spread is None else row.spread
            if row.vendor_gflops and not row.disturbed:
                ratios[row.position] = row.measured_gflops / row.vendor_gflops
    return ratios, spreads, found


def _roofs(report: Report, compared: Sequence[ComparisonRow]) -> tuple[FloatArray, FloatArray]:
    """Return the roofline in GFLOP/s, and the share of it that was measured; NaN where not known."""
    roofs, shares = (np.full(len(report), np.nan) for _ in range(2))
    for row in compared:
        if row.position < len(report) and row.roof_gflops:
            roofs[row.position] = row.roof_gflops
            if not row.disturbed:
                shares[row.position] = row.measured_gflops / row.roof_gflops
    return roofs, shares


def page_of(
    rows: IntArray, key: IntArray | FloatArray | None, order: str, page: int, size: int
) -> tuple[IntArray, int, int]:
    """Return the rows of a page, its number, and the number of pages; unknown figures come last.

    Parameters
    ----------
    rows : int64 [num_rows]
        Rows of all pages.
    key : array or None
        By row, what to sort by; None keeps the order.
    order : str
        asc or desc.
    page : int
        From 1; one that does not exist stands for the nearest.
    size : int
        Rows of a page.
    """
    if key is not None:
        of_rows = np.asarray(key[rows], dtype=np.float64)
        rows = rows[np.argsort(-of_rows if order == "desc" else of_rows, kind="stable")]
    num_pages = max(1, math.ceil(len(rows) / size))
    page = min(max(1, page), num_pages)
    return rows[(page - 1) * size : page * size], page, num_pages


def _instance(report: Report, figures: dict[str, FloatArray], position: int) -> dict[str, Any]:
    values: dict[str, Any] = {name: float(column[position]) for name, column in figures.items()}
    values = {name: None if math.isnan(value) else value for name, value in values.items()}
    for at, name in enumerate(report.variables):
        values[f"var-{name}"] = int(report.shapes[position, at])
    values["category"], values["kernel"] = int(report.category[position]), report.kernel_of(position)
    other = int(report.runner_up[position])
    values["runner_up"] = None if other < 0 else f"{report.names[other]}, {values['other']:.1f}"
    return values


_KERNEL_COLUMNS = [
    Column("category", "category", "what the dispatch rule answers; none: not chosen", "d"),
    Column("kernel", "micro-kernel", "rows x columns of its tile, and what it does otherwise than usual"),
    Column("tails", "tails", "how tiles that reach past an edge are treated"),
    Column("axes", "axes", "what it does otherwise than usual"),
    Column("bytes", "bytes", "compiled, that it adds to the library", "d"),
    Column("preferring", "votes", "instances for which nothing measured is faster", "d"),
    Column("served", "serves", "instances that are sent to it", "d"),
    Column("f_local", "f_local", "GFLOP/s over the instances that it serves, predicted from its waves", "s"),
    Column("best_wave", "best wave", "the fastest of its measured waves, GFLOP/s", ".1f"),
    Column("fit_error", "fit error", "median, of f_local on its measured waves", ".1%"),
    Column("provenance", "from", "where it came from"),
    Column("registers", "registers", "of a thread", "d"),
    Column("shared", "shared bytes", "of a block", "d"),
]


def kernel_table(report: Report, *, sort: str | None, order: str, page: int) -> Table:
    """Return the table of micro-kernels that were considered; unsorted, the chosen ones come first.

    Parameters
    ----------
    report : Report
    sort : str or None
        Name of the column to sort by.
    order : str
        asc or desc.
    page : int
        From 1.
    """
    rows = [_kernel(report, row) for row in report.kernels]
    columns = [c for c in _KERNEL_COLUMNS if any(row[c.name] not in (None, "") for row in rows)]
    names = {column.name for column in columns}
    if sort in names:
        known = [row for row in rows if row[sort] is not None]
        known.sort(key=lambda row: row["_low"] if sort == "f_local" else row[sort], reverse=order == "desc")
        rows = known + [row for row in rows if row[sort] is None]
    else:
        rows.sort(key=lambda row: (row["category"] is None, row["category"] or 0, -row["preferring"]))
    num_pages = max(1, math.ceil(len(rows) / KERNEL_ROWS))
    page = min(max(1, page), num_pages)
    shown = rows[(page - 1) * KERNEL_ROWS : page * KERNEL_ROWS]
    return Table(columns, sort if sort in names else "", order, page, num_pages, len(rows), shown)


def _kernel(report: Report, row: dict[str, Any]) -> dict[str, Any]:
    category, facts = row.get("category"), row.get("facts") or {}
    low, high = math.nan, math.nan
    if category is not None:
        rates = report.columns["f_local"][report.category == category]
        low, high = (float(rates.min()), float(rates.max())) if len(rates) else (low, high)
    span = (
        None
        if math.isnan(low)
        else (f"{low:.0f}" if f"{low:.0f}" == f"{high:.0f}" else f"{low:.0f}–{high:.0f}")
    )
    return {
        "category": category,
        "kernel": str(row["micro_kernel"]),
        "tails": row.get("tails"),
        "axes": _axes(row),
        "bytes": row.get("bytes"),
        "preferring": row.get(
            "instances_preferring", int((report.prefers == report.names.index(row["micro_kernel"])).sum())
        ),
        "served": row.get("instances_served", 0),
        "f_local": span,
        "best_wave": _best_wave(row, report.facts.get("problem") or {}),
        "fit_error": (row.get("f_local") or {}).get("median_fit_error"),
        "provenance": str(row.get("provenance", "")),
        "registers": facts.get("registers"),
        "shared": facts.get("shared_bytes"),
        "_low": low,
    }


def _axes(row: dict[str, Any]) -> str:
    parts = []
    if "thread_rows" in row:
        parts.append(f"thread {row['thread_rows']}x{row['thread_columns']}")
        parts += [f"{name.replace('_', ' ')} {row[name]}" for name in _CUDA_AXES if row.get(name, 1) != 1]
        if row.get("unit", "simt") != "simt":
            parts.append(f"tensor cores ({row['unit']})")
    for name in _AXES:
        value = row.get(name)
        if value:
            parts.append(name if value is True else f"{name} {value}")
    return ", ".join(parts)


def _best_wave(row: dict[str, Any], problem: Mapping[str, Any]) -> float | None:
    """GFLOP/s of the fastest measured wave: two operations for each point of a product's loops.

    A point also has extents that follow from others, such as the rows of an image, which count for nothing.
    None where the problem is no product.
    """
    loops = [index for role in _LOOPS for index in problem.get(role, ())]
    rates = [
        2.0 * math.prod(point[index] for index in loops) / secs / 1e9
        for point, secs in zip(row.get("points", ()), row.get("secs", ()), strict=False)
        if secs > 0 and loops and all(index in point for index in loops)
    ]
    return max(rates, default=None)
