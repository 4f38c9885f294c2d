"""Tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from dietcode.cli.tables import TableColumn, fitting, print_table, terminal
from dietcode.measure.disturbance import undisturbed_of
from dietcode.target.kinds import kind_of_target, label_of
from dietcode.workload.operators import OPERATORS
from dietcode.workload.stops import against, uncompared

_MAX_ROWS = 40


def _shape(variables: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in variables.items())


def _memory(facts: Mapping[str, Any]) -> str:
    """Predicted bytes a second of the largest instance and of the fastest, and what a copy reaches."""
    largest = facts["predicted_bytes_per_sec"][facts["bytes"].index(max(facts["bytes"]))]
    best = max(facts["predicted_bytes_per_sec"])
    text = f"predicted {largest / 1e9:.0f} GB/s at the largest instance, {best / 1e9:.0f} at most"
    if not facts["bandwidth"]:
        return text
    rates = facts["bandwidth"]["bytes_per_sec"]
    return f"{text}; a copy reaches {min(rates) / 1e9:.0f}–{max(rates) / 1e9:.0f} GB/s by its size"


def _loss(fraction: float) -> str:
    """In percent; rounding may have put it a hair below zero."""
    return f"{max(0.0, fraction):.2%}"


def _operator(op: Mapping[str, Any]) -> str:
    """An einsum, a convolution with its options, or a block with its nodes."""
    if "einsum" in op and op["einsum"] is not None:
        return str(op["einsum"])
    for kind in ("conv2d", "conv1d"):
        if kind in op:
            return f"{kind}  " + ", ".join(f"{name} {value}" for name, value in op[kind].items())
    graph = op["block"]["graph"]
    return "block  " + "; ".join(f"{name} = {_node(graph[name])}" for name in sorted(graph))


def _node(node: Mapping[str, Any]) -> str:
    """One node of a block: ``softmax(X, mask; axis n)``."""
    (operator,) = (key for key in node if key in OPERATORS)
    options = ", ".join(f"{key} {value}" for key, value in node.items() if key != operator)
    return f"{operator}({', '.join(map(str, node[operator]))}{'; ' if options else ''}{options})"


def show_library(manifest: Mapping[str, Any], dispatch: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    """Everything of a library that fits a screen."""
    console, selection, rule = terminal(), report["selection"], report["rule"]
    console.print(f"{manifest['name']}  {_operator(manifest['workload']['op'])}")
    console.print(f"target      {label_of(report['target'])}; device {report['device']['name']}")
    if kind_of_target(report["target"]).torch_device is None:  # the host's threads compute
        another = "dietcode.load(DIR, num_threads=N) for another number"
        console.print(f"threads     {manifest['num_threads']}, as tuned; {another}")
    if "memory" in report:
        console.print(f"memory      {_memory(report['memory'])}")
    if "dtypes" in report:
        dtypes = report["dtypes"]
        added = f"sums {dtypes['accumulate']}"
        console.print(f"dtypes      operands {dtypes['operands']}, {added}, output {dtypes['output']}")
    if "standing" in report:
        console.print(f"standing    {report['standing']}")
    console.print(f"seed        {report.get('seed_note') or _seed(report['seed'])}")
    console.print(
        f"space       {report['space']['measured']} micro-kernels measured, "
        f"{len(report['space'].get('pruned', []))} pruned after a wave, "
        f"{len(report['space']['failed'])} failed; κ = {report['calibration']['kappa']:.2f}"
    )
    for decision in report.get("rounds", []):
        console.print(f"            {decision['message']}")
    for source, facts in report.get("provenance", {}).items():
        gain = "" if facts["gain"] is None else f"; without them {_loss(facts['gain'])} less throughput"
        chosen = ", ".join(facts["chosen"]) or "none chosen"
        console.print(f"            {source}: {facts['measured']} measured, {chosen}{gain}")
    caveat = uncompared(report)
    losses = f"{_loss(selection['loss_mean'])} mean, {_loss(selection['loss_worst'])} worst,"
    console.print(
        f"selection   {len(dispatch['categories'])} of {selection['num_free_choice']} with free choice; "
        f"predicted loss {'not known:' if caveat else losses}"
    )
    console.print(f"            {caveat or against(report)}")
    if not selection["objective_met"]:
        console.print(f"            objective not met: {selection['reason']}")
    console.print(
        f"rule        {rule['num_leaves']} leaves, depth {rule['depth']}"
        + ("" if caveat else f"; loss {_loss(rule['loss_mean'])} mean, {_loss(rule['loss_worst'])} worst")
    )
    unseen = rule.get("unseen")
    if unseen and not caveat:
        console.print(
            f"            on {unseen['num_shapes']} shapes it was not fitted on: "
            f"{_loss(unseen['loss_mean'])} mean, {_loss(unseen['loss_worst'])} worst"
        )
    sizes = ", ".join(f"{name} {facts['bytes']}" for name, facts in manifest["files"].items())
    shared = f"; runtime {manifest['runtime']['bytes']} (shared)" if manifest["runtime"] else ""
    console.print(f"bytes       {sizes}{shared}")
    for arch, reason in report.get("left_out", {}).items():
        console.print(f"            no code for {arch}: {reason}")
    for arch, kernels in report.get("machine_code", {}).items():
        most = max(facts["registers"] for facts in kernels.values())
        spilling = sorted(name for name, facts in kernels.items() if facts["spills"])
        spills = f"; spills: {', '.join(spilling)}" if spilling else ""
        console.print(f"            {arch}: {len(kernels)} functions, up to {most} registers{spills}")
    for number, classes in enumerate(manifest.get("alignment_classes", ())):
        if len(classes) > 1:
            console.print(f"alignment   category {number}: {_classes_text(classes)}")
    _show_categories(dispatch, report)
    _show_runs(dispatch)


def _classes_text(classes: Sequence[Mapping[str, Any]]) -> str:
    """Return the alignment classes of a category in words, the widest first."""
    pairs = [(own["multiple"], " and ".join(own["dims"])) for own in classes[:-1]]
    wider = (f"up to {count} elements at a time where {count} divides {dims}" for count, dims in pairs)
    return "; ".join([*wider, "else as fixed extents allow"])


def _seed(seed: Mapping[str, Any] | None) -> str:
    if not seed:
        return (
            "none: MetaSchedule finished no trial (over RPC it is not run); "
            "tiles from the limits of the hardware"
        )
    tile = f"T0 = {seed['tile'][0]}x{seed['tile'][1]}"
    if seed.get("from_workload"):
        return f"{tile} of an earlier workload; {seed['reason']}"
    if seed.get("reason"):
        return f"{tile} of the space; {seed['reason']}"
    return f"{tile}, {seed['best_gflops']} GFLOP/s, {seed['trials']} trials of MetaSchedule"


def _show_categories(dispatch: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    columns = [
        *(TableColumn("category", right=True), TableColumn("micro-kernel"), TableColumn("from", rank=2)),
        *(TableColumn("bytes", rank=1, right=True), TableColumn("instances", right=True)),
        *(TableColumn("f_local GFLOP/s", right=True), TableColumn("fit error", rank=3, right=True)),
    ]
    by_category = {k["category"]: k for k in report["micro_kernels"] if k["category"] is not None}
    rows = []
    for entry in dispatch["categories"]:
        kernel = by_category[entry["category"]]
        mine = [r for r in report["instances"] if r["category"] == entry["category"]]
        rates = [r["f_local"] / 1e9 for r in mine]
        cells = (
            *(str(entry["category"]), entry["micro_kernel"], kernel["provenance"], str(kernel["bytes"])),
            str(kernel["instances_served"]),
            f"{min(rates):.0f}–{max(rates):.0f}" if rates else "-",
            f"{kernel['f_local']['median_fit_error']:.1%}",
        )
        rows.append(cells)
    print_table(columns, rows, title="Categories")


def _show_runs(dispatch: Mapping[str, Any]) -> None:
    facts = dispatch["table"]
    rows: Sequence[Mapping[str, Any]] = facts["rows"]
    columns = [TableColumn(name, right=True) for name in facts["variables"]]
    columns += [TableColumn("category", right=True), TableColumn("micro-kernel")]
    cells = []
    for row in rows[:_MAX_ROWS]:
        values = [row[name] for name in facts["variables"]]
        runs = [_run_text(value) if isinstance(value, list | tuple) else str(value) for value in values]
        kernel = dispatch["categories"][row["category"]]["micro_kernel"]
        cells.append([*runs, str(row["category"]), kernel])
    hidden = len(rows) - _MAX_ROWS
    caption = f"{hidden} more rows in dispatch.json" if hidden > 0 else ""
    print_table(columns, cells, title="Dispatch table", caption=caption)


def _run_text(run: Sequence[int]) -> str:
    low, high = run[0], run[-1]
    return str(low) if low == high else f"{low}…{high}"


def show_targets(facts: Sequence[Mapping[str, Any]]) -> None:
    """One row for each kind of target."""
    columns = [
        *(TableColumn("kind"), TableColumn("processor"), TableColumn("device"), TableColumn("cores", rank=1)),
        *(TableColumn("vector bits", rank=2), TableColumn("build"), TableColumn("measure")),
    ]
    rows = [
        (
            row["kind"],
            str(row.get("mcpu", " ".join(row.get("archs", ())) or "-")),
            "; ".join(str(row[key]) for key in ("device", "reason") if key in row) or "-",
            str(row.get("num_cores", "-")),
            str(row.get("vector_bits", "-")),
            "yes" if row["build"] else "no",
            "yes" if row["measure"] else "no",
        )
        for row in facts
    ]
    print_table(columns, rows)


# Columns of `dietcode bench` with their widths, in cells; the last one has what is left.
_BENCH = [
    (TableColumn("instance"), 20),
    (TableColumn("category", rank=2, right=True), 8),
    (TableColumn("micro-kernel", rank=4, right=True), 12),
    (TableColumn("padding", rank=5, right=True), 8),
    (TableColumn("predicted", rank=1, right=True), 9),
    (TableColumn("measured", right=True), 9),
    (TableColumn("vendor", right=True), 9),
    (TableColumn("ratio", right=True), 6),
    (TableColumn("company", rank=3, right=True), 8),
    (TableColumn("of roof", rank=2, right=True), 7),
    (TableColumn("error", rank=6, right=True), 8),
]
_BENCH_PATH_CELLS = 22


class BenchTable:
    """Rows are printed as they are measured."""

    def __init__(self) -> None:
        self._console = terminal()
        columns, widths = [column for column, _ in _BENCH], [width + 1 for _, width in _BENCH]
        self._shown = fitting(columns, widths, self._console.width - _BENCH_PATH_CELLS)
        self._line([column.name for column in columns], "fastest path, GFLOP/s")

    def row(self, record: Mapping[str, Any]) -> None:
        """One instance."""
        vendor = record["vendor_gflops"]
        cells = [
            *(_shape(record["shape_vars"]), str(record["category"]), record["micro_kernel"]),
            *(f"{record['padding_ratio']:.3f}", f"{record['predicted_gflops']:.0f}"),
            *(f"{record['measured_gflops']:.0f}", f"{vendor:.0f}" if vendor else "-"),
            _ratio(record) if vendor else "-",
            "-" if not vendor else "?" if record["disturbed"] else f"{in_company(record):.0%}",
            "?" if record["disturbed"] else f"{record['measured_gflops'] / record['roof_gflops']:.0%}",
            f"{record['max_rel_error']:.1e}",
        ]
        self._line(cells, f"{record['vendor'] or '-'}{' (disturbed)' if record['disturbed'] else ''}")

    def _line(self, cells: Sequence[str], path: str) -> None:
        parts = []
        for i in self._shown:
            column, width = _BENCH[i]
            parts.append(f"{cells[i]:>{width}}" if column.right else f"{cells[i]:<{width}}")
        self._console.print(" ".join(parts) + f"  {path}", soft_wrap=True)

    def summary(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Geometric mean and worst ratio, prediction gap, largest error; without rows that were disturbed."""
        if not records:
            return
        error = f"largest error {max(r['max_rel_error'] for r in records):.1e}"
        disturbed, measured = [r["disturbed"] for r in records if r["disturbed"]], len(records)
        records = undisturbed_of(records, lambda record: record["disturbed"])
        if disturbed:
            left = "left out of the means" if records else "so there are no means"
            line = f"disturbed: {len(disturbed)} of {measured} instances, {left} ({disturbed[0]}); "
            self._console.print(f"{line}measure again when nothing else runs", soft_wrap=True)
        if not records:
            self._console.print(error)
            return
        gaps = [abs(r["measured_gflops"] / r["predicted_gflops"] - 1.0) for r in records]
        line = f"mean gap to prediction {sum(gaps) / len(gaps):.1%}, {error}"
        ratios = [r["measured_gflops"] / r["vendor_gflops"] for r in records if r["vendor_gflops"]]
        if ratios:
            mean = geometric_mean(ratios)
            line = f"{mean:.2f}x of the vendor in geometric mean, {min(ratios):.2f}x at worst; {line}"
        self._console.print(line)
        shares = [r["measured_gflops"] / r["roof_gflops"] for r in records]
        mean = geometric_mean(shares)
        self._console.print(
            f"of roof: {mean:.0%} of what the machine allowed in geometric mean, {min(shares):.0%} at worst; "
            f"its peak was {max(r['peak_gflops'] for r in records):.0f} GFLOP/s"
        )
        if ratios:
            shares = [in_company(r) for r in records if r["vendor_gflops"]]
            mean = geometric_mean(shares)
            self._console.print(
                f"company: in turns with the vendor, {mean:.0%} of the speed alone in geometric mean, "
                f"{min(shares):.0%} at worst"
            )


def _ratio(record: Mapping[str, Any]) -> str:
    """The speed over the vendor's; none where it was disturbed."""
    return "?" if record["disturbed"] else f"{record['measured_gflops'] / record['vendor_gflops']:.2f}"


def in_company(record: Mapping[str, Any]) -> float:
    """The share of its own speed that a library keeps where its calls alternate with the vendor's."""
    return float(record["in_company"]["measured_gflops"] / record["measured_gflops"])
