"""``dietcode inspect`` of a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.cli.tables import TableColumn, print_table, terminal
from dietcode.models.schedule_rows import schedule_rows


def show_model(manifest: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    """Everything of a bundle that fits a screen."""
    console = terminal()
    ranges = (f"{name} in {one['min']}…{one['max']}" for name, one in report["dimensions"].items())
    console.print(f"{manifest['name']}  {', '.join(ranges) or 'one shape'}")
    for name, type_ in report["inputs"].items():
        console.print(f"input       {name}: {type_}")
    for type_ in report["outputs"]:
        console.print(f"output      {type_}")
    console.print(f"weights     {weights_text(manifest, report)}")
    if "kernels" in report:  # of a recursion, whose memory grows with its structures
        counts = report["kernels"]
        kernels = ", ".join(f"{word} {counts.get(word, 0)}" for word in ("before", "leaf", "cell"))
        console.print(f"kernels     {kernels}; before: once for all nodes; leaf: once; cell: for each level")
        if "first" in counts:
            console.print(
                f"            first {counts['first']}: for the level above leaves, which are tables"
            )
        if "multiply_adds" in report:
            each = ", ".join(f"{word} {number}" for word, number in report["multiply_adds"].items())
            console.print(f"products    multiplications for a node: {each}")
        if "schedules" in report:
            _show_schedules(report)
        if "node_bytes" in report:
            most = _bytes(report["workspace_bytes"])
            console.print(
                f"workspace   {_bytes(report['node_bytes'])} for a node, up to {most} for each call at a time"
            )
        console.print(f"samples     {_samples(manifest.get('samples'))}")
    else:
        console.print(f"workspace   up to {_bytes(report['workspace_bytes'])} for each call at a time")
    parts = report["parts"]
    console.print(
        f"steps       {report['num_operators']} operators: {report['num_calls']} calls of {len(parts)} "
        f"libraries, {_bytes(sum(part['code_bytes'] for part in parts))} of code"
    )
    host = ", ".join(f"{name} {number}" for name, number in sorted(report["host_operators"].items()))
    console.print(f"on the host {host or 'nothing'}")
    if parts:
        show_parts(parts)
        if report.get("levels"):
            _show_levels(report["levels"])
        if report.get("warning"):
            console.print(f"warning     {report['warning']}")
        console.print("a part's own report: dietcode inspect DIR/libraries/PART…")


def _show_schedules(report: Mapping[str, Any]) -> None:
    """Print which schedule of a recursion was kept, and what those took that were tried."""
    for at, row in enumerate(schedule_rows(report)):
        terminal().print(f"{'' if at else 'schedules':<11} {row.text}")
    if "schedules_disturbed" in report:
        terminal().print(f"{'':<11} timed beside others: {report['schedules_disturbed']}")


def weights_text(manifest: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Return how many weights a bundle has, and where."""
    where = "in the bundle" if "weights.safetensors" in manifest["files"] else "apart: load(…, weights=FILE)"
    weights = f"{report['num_weights']}, {_bytes(report['weight_bytes'])}, {where}"
    return weights if report["num_weights"] else "none"


def show_parts(parts: Any) -> None:
    """Print the libraries of a bundle."""
    columns = [
        *(TableColumn("part", whole=True), TableColumn("operator")),
        *(
            TableColumn(name, right=True, whole=True)
            for name in ("calls", "FLOPs", "code", "measured", "categories")
        ),
    ]
    total = sum(part["flops_at_most"] for part in parts) or 1
    rows = [
        (
            part["digest"][:12],
            f"{part['kind']}: {part['operator']}",
            str(part["calls"]),
            _share(part["flops_at_most"] / total),
            _bytes(part["code_bytes"]),
            "-" if part["measured"] is None else str(part["measured"]),
            str(part["categories"]),
        )
        for part in parts
    ]
    caption = "FLOPs: share of a call with the largest shapes; measured: its micro-kernels, to the end"
    print_table(columns, rows, title="Parts", caption=caption)


def _samples(samples: Mapping[str, Any] | None) -> str:
    if samples is None:
        return "none: sizes of levels count evenly in the logarithm"
    nodes, levels = (list(map(int, samples[key])) for key in ("nodes", "levels"))
    largest = f"up to {max(nodes)} nodes, levels up to {max(levels, default=0)}"
    return f"{samples['calls']} calls, {largest}, {sum(samples['levels'].values())} levels beside leaves"


def _show_levels(rows: Any) -> None:
    columns = [
        *(TableColumn("phase"), TableColumn("part", whole=True)),
        *(TableColumn(name, right=True, whole=True) for name in ("rows", "category")),
        *(TableColumn("micro-kernel"), TableColumn("in samples", right=True, rank=1)),
    ]
    cells = [
        (
            *(
                row["phase"],
                row["part"][:12],
                run_text(*row["rows"]),
                str(row["category"]),
                row["micro_kernel"],
            ),
            "-" if row["samples"] is None else str(row["samples"]),
        )
        for row in rows
    ]
    caption = "rows: nodes of a level (cell), leaves (leaf) or all nodes of a call (before)"
    print_table(columns, cells, title="Which sizes go where", caption=caption)


def run_text(first: int, last: int) -> str:
    """Return numbers from one to another as a text."""
    return str(first) if first == last else f"{first}…{last}"


def show_model_times(record: Mapping[str, Any]) -> None:
    """One size of a model, or one structure: the time of a call, of its parts, and the vendor's for these."""
    size = ", ".join(f"{name}={value}" for name, value in record["dimensions"].items())
    if "structure" in record:
        size = f"{record['structure']}: {size}"
    columns = [
        *(TableColumn("part", whole=True), TableColumn("operator", rank=2)),
        *(TableColumn(name, right=True, whole=True) for name in ("calls", "share", "ms", "vendor", "ratio")),
        *(TableColumn("categories", rank=3), TableColumn("vendor's path", rank=1)),
    ]
    rows = []
    for part in record["parts"]:
        own, vendor = part["kernel_secs"], part["vendor_secs"]
        ratio = "-" if not (vendor and own) else "?" if part["disturbed"] else f"{vendor / own:.2f}"
        rows.append(
            (
                *(part["digest"][:12], f"{part['kind']}: {part['operator']}", str(part["calls"] or "-")),
                *(_share(part["share"]), _ms(part["secs"])),
                *(_ms(vendor) if vendor else "-", ratio),
                *(", ".join(map(str, part["categories"])) or "-", part["vendor"] or "-"),
            )
        )
    for row in record["host"]:
        share, secs = _share(row["secs"] / record["secs"]), _ms(row["secs"])
        rows.append(("on the host", row["operator"], str(row["calls"]), share, secs, "-", "-", "-", "-"))
    title = f"{size or 'One shape'}: a call takes {_ms(record['secs'])} ms"
    caption = (
        "ms: in a call of the model; vendor: of the same calls; ratio: in turns, above 1 the vendor is slower"
    )
    print_table(columns, rows, title=title, caption=caption)
    for one in record.get("eager", ()):
        terminal().print(
            f"ran eagerly: {one['where']}: {one['reason']}, {one['count']} times", soft_wrap=True
        )
    reasons = [one["disturbed"] for one in (record, *record["parts"]) if one["disturbed"]]
    if reasons:
        terminal().print(
            f"disturbed: {'the call' if record['disturbed'] else f'{len(reasons)} parts'} ({reasons[0]}); "
            "measure again when nothing else runs",
            soft_wrap=True,
        )


def _ms(secs: float) -> str:
    """Milliseconds, also of what takes a few nanoseconds."""
    return f"{secs * 1e3:.3f}" if secs >= 1e-4 else f"{secs * 1e3:.2g}"


def _share(fraction: float) -> str:
    return f"{fraction:.1%}" if fraction >= 5e-4 or not fraction else "<0.1%"


def _bytes(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
