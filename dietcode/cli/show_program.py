"""``dietcode inspect`` of a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.cli.show_model import run_text, show_parts, weights_text
from dietcode.cli.tables import TableColumn, print_table, terminal


def show_program(
    manifest: Mapping[str, Any], report: Mapping[str, Any], description: Mapping[str, Any]
) -> None:
    """Everything of a program's bundle that fits a screen; the description is ``program.json``."""
    console = terminal()
    functions = description["functions"]
    entry = functions[description["entry"]]
    many = entry["parameters"]
    console.print(f"{manifest['name']}  a program of {many} parameter{'s' * (many != 1)}")
    for one in description["records"]:
        console.print(f"objects     {one['name']}({', '.join(one['fields'])})")
    console.print(f"weights     {weights_text(manifest, report)}")
    names = ", ".join(f"{one['name'].rpartition('.')[2]} {len(one['code'])}" for one in functions)
    console.print(f"functions   {names}: instructions of each")
    _show_common(report, description)


def show_recorded(
    manifest: Mapping[str, Any], report: Mapping[str, Any], description: Mapping[str, Any]
) -> None:
    """Everything of a recorded program's bundle that fits a screen."""
    console = terminal()
    units = description["units"]
    many = sum(len(one["regions"]) for one in units)
    console.print(f"{manifest['name']}  a recorded program: {many} regions in {len(units)} functions")
    console.print(f"weights     {weights_text(manifest, report)}")
    if description["passed_on"]:
        attributes = ", ".join(description["passed_on"])
        console.print(f"in order    instances run one after the other, as they pass on {attributes}")
    names = [one["name"] for one in description["blocks"]]
    cells = [
        (
            *(f"{unit['file']}:{region['line']}", unit["qualname"], str(len(region["variants"]))),
            ", ".join(dict.fromkeys(names[block] for one in region["variants"] for block, _ in one["notes"]))
            or "constants",
        )
        for unit in units
        for region in unit["regions"]
    ]
    columns = [
        *(TableColumn("line", whole=True), TableColumn("function")),
        *(TableColumn("variants", right=True, whole=True), TableColumn("blocks")),
    ]
    caption = "variants: for other shapes, modules or numbers; blocks: what a call of the region notes"
    print_table(columns, cells, title="Regions", caption=caption)
    eager = [(one["where"], one["reason"]) for one in report["eager"]]
    if eager:
        print_table(
            [TableColumn("line", whole=True), TableColumn("why")],
            eager,
            title="What runs eagerly",
            caption="of the samples; a call counts it: program.explain()",
        )
    _show_common(report, description)


def _show_common(report: Mapping[str, Any], description: Mapping[str, Any]) -> None:
    console = terminal()
    constants = report.get("constants", ())
    console.print(f"constants   {', '.join(constants) or 'none'}: tensors that are there from the start")
    console.print(f"rows        up to {description['max_rows']} tensors of a type in a call")
    console.print(f"samples     {report['samples']['instances']} instances, run together")
    _show_blocks(report["blocks"])
    if report["parts"]:
        show_parts(report["parts"])
        _show_runs(report["runs"])
        if report.get("warning"):
            console.print(f"warning     {report['warning']}")
        console.print("a part's own report: dietcode inspect DIR/libraries/PART…")


def _show_blocks(blocks: Any) -> None:
    columns = [
        *(TableColumn("block"), TableColumn("phase", right=True)),
        *(TableColumn(name, right=True, whole=True) for name in ("kernels", "moves", "rows", "runs")),
        TableColumn("rows of a run", right=True, whole=True),
        TableColumn("shared weights"),
    ]
    cells = [
        (
            *(one["name"], str(one["phase"]), str(one["kernels"]), str(one["moves"])),
            *_of_buckets({int(rows): int(runs) for rows, runs in one["buckets"].items()}),
            ", ".join(one.get("weights", ())),
        )
        for one in blocks
    ]
    caption = (
        "rows, runs: of the samples together; blocks of one depth are run at once, phase after phase; "
        "shared weights: the same for all rows"
    )
    print_table(columns, cells, title="Blocks", caption=caption)


def _show_runs(rows: Any) -> None:
    columns = [
        *(TableColumn("block"), TableColumn("part", whole=True)),
        *(TableColumn(name, right=True, whole=True) for name in ("rows", "category")),
        *(TableColumn("micro-kernel"), TableColumn("runs", right=True, whole=True)),
        TableColumn("time", right=True, whole=True),
    ]
    known = [row["predicted_secs"] for row in rows]
    total = 0.0 if None in known else sum(known)
    cells = [
        (
            *(row["block"], row["part"][:12], run_text(*row["rows"]), str(row["category"])),
            *(row["micro_kernel"], str(row["runs"])),
            f"{row['predicted_secs'] / total:.1%}" if total else "-",
        )
        for row in rows
    ]
    caption = "runs: of the samples, in calls of 1, 8 and all of them; time: their predicted share"
    print_table(columns, cells, title="Which numbers of rows go where", caption=caption)


def _of_buckets(buckets: Mapping[int, int]) -> tuple[str, str, str]:
    """Return the rows of all runs, the number of runs, and the rows of the smallest and of the largest."""
    rows, runs = sum(many * count for many, count in buckets.items()), sum(buckets.values())
    low, high = min(buckets, default=0), max(buckets, default=0)
    return str(rows), str(runs), str(low) if low == high else f"{low}…{high}"
