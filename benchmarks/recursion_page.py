"""The pages of recursions, of every device that has records of them.

    python -m benchmarks.recursion_page

Made from ``recursion.json`` and ``recursion_parts.json`` in ``benchmarks/results/<device>/`` alone; writes
``docs/evidence/<device>/recursion.md``, and the table of `DEVICE` in docs/recursion.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evidence.__main__ import OUTPUT
from benchmarks.evidence.pages import unknown_processor, write_index
from benchmarks.evidence.versions import note_generators
from benchmarks.facts import RESULTS, ROOT, between_marks, device_name, rows_before, withdrawn
from benchmarks.headline import notes
from benchmarks.headline_tables import commit
from benchmarks.markdown import table, wrapped

_NAMES = {
    "tree-fc": "TreeFC",
    "dag-rnn": "DAG-RNN",
    "tree-gru": "child-sum TreeGRU",
    "tree-lstm": "child-sum TreeLSTM",
    "mv-rnn": "MV-RNN",
    "lstm": "LSTM",
}
# Table 5 of the paper, of its Intel CPU with 8 cores: DyNet's milliseconds and its own, at batch 1 and 10.
_PAPER = {
    ("tree-fc", 256): ((0.42, 0.12), (3.41, 0.64)),
    ("dag-rnn", 256): ((1.12, 0.19), (6.07, 0.89)),
    ("tree-gru", 256): ((0.98, 0.18), (4.09, 0.89)),
    ("tree-lstm", 256): ((1.15, 0.23), (5.59, 1.02)),
    ("mv-rnn", 64): ((0.43, 0.29), (4.68, 1.22)),
    ("tree-fc", 512): ((0.93, 0.42), (8.03, 2.3)),
    ("tree-gru", 512): ((2.45, 0.58), (8.63, 2.97)),
    ("tree-lstm", 512): ((2.95, 0.54), (12.36, 3.02)),
}
# Its section 7.5: microseconds of putting structures into order, at batch 1 and 10.
_PAPER_ORDER = {"sentences": (1.31, 9.64), "grids": (8.2, 95.14), "perfect": (3.04, 30.36)}
_OF = ["model", "hidden", "structures", "batch"]
_MS, _ORDERED = "ms, structure prepared", "ms, with its ordering"
_RATIOS = [*_OF, _MS, _ORDERED, "PyTorch ×", "DyNet ×", "DyNet GFLOP/s", "others had", "commit"]
_TABLES = ", tables"
_LEAST_PEAK = 0.75  # of the median
_MOST_APART = 1.25  # of the same call in two tables
_LARGE = 512
DEVICE = "amd-epyc-family-25-model-17-2-cores"  # whose table docs/recursion.md has
PAGE = ROOT / "docs" / "recursion.md"

Rows = Sequence[dict[str, Any]]


def main() -> None:
    """Write the page of each device, and the list of all pages."""
    note_generators()
    for record in sorted(RESULTS.glob("*/recursion.json")):
        path = OUTPUT / record.parent.name / "recursion.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(record.parent))
        print(path.relative_to(ROOT))
    write_index(OUTPUT)
    PAGE.write_text(with_summary(PAGE.read_text()))


def with_summary(text: str) -> str:
    """Return docs/recursion.md with today's table of `DEVICE` between its marks.

    Raises
    ------
    SystemExit
        It has no marks.
    """
    rows = rows_before(RESULTS / DEVICE / "recursion.json")
    head = [
        "model",
        "hidden",
        "structures",
        "threads",
        "batches",
        _MS,
        _ORDERED,
        "PyTorch ×",
        "with tables ×",
        "DyNet ×",
        "of the peak",
        "commit",
    ]
    parts = [table(head, _summed(rows)).rstrip(), *notes(rows), *filter(None, [withdrawn(rows)])]
    return between_marks(text, "benchmarks.recursion_page", parts, PAGE)


def _summed(rows: Rows) -> Iterable[list[Any]]:
    """One line for the batches of a model; what something disturbed has no figure."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = -row["threads"], row["hidden"] >= _LARGE, list(_NAMES).index(row["model"]), row["inputs"]
        groups.setdefault(key, []).append(row)
    for _, own in sorted(groups.items()):
        own.sort(key=lambda row: row["batch"])
        calm = [None if row.get("disturbed") else row for row in own]
        columns = (
            [str(row["batch"]) for row in own],
            ["disturbed" if row is None else f"{1e3 * row['secs']['dietcode']:.3g}" for row in calm],
            ["" if row is None else f"{1e3 * _ordered_secs(row):.3g}" for row in calm],
            *zip(*(("", "", "") if row is None else _over(row) for row in calm), strict=True),
            [
                "" if row is None else f"{row['gflops_a_sec']['dietcode'] / row['peak_gflops']:.0%}"
                for row in calm
            ],
        )
        first = own[0]
        named = [_NAMES[first["model"]], first["hidden"], first["inputs"], first["threads"]]
        commits = ", ".join(dict.fromkeys(map(commit, own)))
        yield [*named, *(", ".join(column) if any(column) else "" for column in columns), commits]


def page(folder: Path) -> str:
    """Return the page of the device whose records a folder has."""
    found = json.loads((folder / "recursion.json").read_text())
    rows = rows_before(folder / "recursion.json")
    two = [row for row in rows if row["threads"] > 1]
    one = [row for row in rows if row["threads"] == 1]
    parts = [
        f"# Recursions: {device_name(found)}\n",
        wrapped(
            f"""Written by `python -m benchmarks.recursion_page`. Ours: float32; DyNet 2.2 on one thread,
            which is all that it uses, and with the making of its
            graph, beside which ours has the ordering of the structure (one reading), the faster of two ways
            to write its products where two were timed; PyTorch
            {found["versions"]["torch"]} batched by level by hand, of whose forms without tables of words the
            fastest one counts, for an LSTM `torch.nn.LSTM`, both with structures that are prepared. What
            others had is the part of all cores' time that other processes used meanwhile; rows that something
            disturbed are in the first tables alone.
            The numbers of the paper, Cortex (MLSys 2021), are of other
            machines and older programs: they stand beside ours, they do not compare with them. Its Figure 6
            is over PyTorch without batching, which is not measured here; its Figures 8, 9 and 11 and Table 4
            are of GPUs.{unknown_processor(found)} {withdrawn(rows)}"""
        ),
        *(f"{note}\n" for note in notes(rows)),
        "## Beside PyTorch and DyNet\n",
        table(_RATIOS, _ratios(two)),
    ]
    calm = [row for row in two if not row.get("disturbed")]
    if tables := [*_of_tables(calm)]:
        parts += [
            "The same beside PyTorch written with tables of the words' products, as ours has them:\n",
            table([*_OF, "PyTorch with tables ×"], tables),
        ]
    if one:
        parts += [
            "## One thread\n",
            table(_RATIOS, _ratios(one)),
        ]
    parts += [
        "## Over DyNet, beside Table 5 of the paper\n",
        "The paper's: an Intel Cascade Lake, 8 cores. Sentences and perfect trees as it describes them.\n",
        table(
            ["model", "hidden", "batch", "paper: DyNet, Cortex ms", "×", "here: DyNet, ours ms", "×"],
            _beside_paper(calm),
        ),
        *_of_roofline(_with_a_peak(calm)),
        "## Putting structures into order, beside section 7.5\n",
        table(["structures", "batch", "nodes", "paper µs", "here µs"], _orders(calm)),
        wrapped(
            """The paper's structures come as its own objects; ours as arrays, which are checked, from Python,
            one reading each."""
        ),
    ]
    path = folder / "recursion_parts.json"
    if path.exists():
        parts += _of_parts(json.loads(path.read_text()), calm)
    return "\n".join(parts).rstrip() + "\n"


def over_dynet(row: dict[str, Any]) -> float:
    """Return DyNet's seconds, its graph's making among them, over ours with the ordering of the structure.

    Infinity where DyNet was not measured.
    """
    return _best(row, "dynet") / _ordered_secs(row)


def _ordered_secs(row: dict[str, Any]) -> float:
    """Return our seconds with those of putting the structure into order, which were read once."""
    return float(row["secs"]["dietcode"] + row["structure_secs"])


def _best(row: dict[str, Any], word: str) -> float:
    """Return the seconds of the fastest of the peers whose names begin so; infinity where there is none.

    PyTorch with tables of words is not among them: it is the same model after a rewriting.
    """
    found = [
        secs for name, secs in row["secs"].items() if name.startswith(word) and not name.endswith(_TABLES)
    ]
    return min(found, default=float("inf"))


def _beside_paper(rows: Rows) -> Iterable[Sequence[Any]]:
    for row in rows:
        paper = _PAPER.get((row["model"], row["hidden"]))
        if paper is None or row["inputs"] == "syntax" or row["batch"] not in (1, 10):
            continue
        theirs, own = paper[row["batch"] == 10]
        dynet = 1e3 * _best(row, "dynet")
        if not np.isfinite(dynet):
            continue
        ours = 1e3 * _ordered_secs(row)
        yield (
            *(_NAMES[row["model"]], row["hidden"], row["batch"]),
            *(f"{theirs}, {own}", f"{theirs / own:.1f}", f"{dynet:.2f}, {ours:.2f}", f"{dynet / ours:.1f}"),
        )


def _of_roofline(rows: Rows) -> list[str]:
    """Return the section of rows beside which the machine's peak was read."""
    if not rows:
        return []
    head = [*_OF, "MFLOP", "peak", "reading", "ours", "PyTorch", "ours of the peak", "ours ×", "most ×"]
    return [
        "## Roofline (the paper's appendix C)\n",
        wrapped(
            f"""FLOPs are those of the products that a model needs; all rates are GFLOP/s. The peak is what
            the cores gave beside the row, in multiply-adds in registers, so that nothing which computes these
            products can be faster over PyTorch than the last column, whatever it does besides. Reading is the
            rate of products that read all weights once for each level as fast as the cores read so many bytes
            beside the row: where it is below the peak, levels wait for their weights. Rows whose peak was
            below {_LEAST_PEAK} of the median are left out: somebody else had the cores. The peak allows less
            than twice PyTorch's speed for: {_below_two(rows)}."""
        ),
        table(head, map(_roofline, rows)),
    ]


def _with_a_peak(rows: Rows) -> Rows:
    """Rows beside which the cores were all there; of a peak far below the others' somebody else had some."""
    known = [row for row in rows if "peak_gflops" in row]
    usual = float(np.median([row["peak_gflops"] for row in known])) if known else 0.0
    return [row for row in known if row["peak_gflops"] >= _LEAST_PEAK * usual]


def _roofline(row: dict[str, Any]) -> Sequence[Any]:
    torch_secs, ours = _best(row, "by level"), row["secs"]["dietcode"]
    theirs, own, peak = row["mflops"] / torch_secs / 1e3, row["mflops"] / ours / 1e3, row["peak_gflops"]
    read_bytes = row["weight_bytes"] * row["levels"]
    reading = 1e6 * row["mflops"] / read_bytes * row["read_gbytes_per_sec"]
    rates = (f"{one:.0f}" for one in (row["mflops"], peak, reading, own, theirs))
    return (*_of(row), *rates, f"{own / peak:.0%}", f"{torch_secs / ours:.2f}", f"{peak / theirs:.2f}")


def _below_two(rows: Rows) -> str:
    """Return the rows for which two times PyTorch's speed is beyond the cores."""
    found = [
        f"{_NAMES[row['model']]} {row['hidden']} of {row['inputs']} at batch {row['batch']}"
        for row in rows
        if 2 * row["mflops"] / _best(row, "by level") / 1e3 > row["peak_gflops"]
    ]
    return ", ".join(found) or "none"


def _of(row: dict[str, Any]) -> Sequence[Any]:
    return _NAMES[row["model"]], row["hidden"], row["inputs"], row["batch"]


def _ratios(rows: Rows) -> Iterable[Sequence[Any]]:
    for row in rows:
        ours = f"{1e3 * row['secs']['dietcode']:.3g}", f"{1e3 * _ordered_secs(row):.3g}"
        by_level, _, dynet = _over(row)
        others = f"{row['others']:.0%}" if "others" in row else "not read"
        others += ", disturbed" if row.get("disturbed") else ""
        rate = f"{row['mflops'] / _best(row, 'dynet') / 1e3:.0f}" if dynet else ""
        yield (*_of(row), *ours, by_level, dynet, rate, others, commit(row))


def _of_tables(rows: Rows) -> Iterable[Sequence[Any]]:
    for row in rows:
        if told := _over_tables(row):
            yield *_of(row), told


def _over_tables(row: dict[str, Any]) -> str:
    """PyTorch's fastest form with tables of words over ours; empty where none was timed."""
    secs = [one for name, one in row["secs"].items() if name.endswith(_TABLES)]
    return f"{min(secs) / row['secs']['dietcode']:.2f}" if secs else ""


def _over(row: dict[str, Any]) -> tuple[str, str, str]:
    """What a row has under *PyTorch ×*, *with tables ×* and *DyNet ×*."""
    by_level = _best(row, "by level") / row["secs"]["dietcode"]
    dynet = over_dynet(row)
    return f"{by_level:.2f}", _over_tables(row), f"{dynet:.2f}" if np.isfinite(dynet) else ""


def _orders(rows: Rows) -> Iterable[Sequence[Any]]:
    seen = set()
    for row in rows:
        key = row["inputs"], row["batch"]
        if key in seen:
            continue
        seen.add(key)
        paper = _PAPER_ORDER.get(row["inputs"]) if row["batch"] in (1, 10) else None
        own = f"{1e6 * row['structure_secs']:.0f}"
        yield (*key, row["nodes"], paper[row["batch"] == 10] if paper else "", own)


def _of_parts(found: dict[str, Any], first_table: Rows) -> list[str]:
    rows, names = [], list(dict.fromkeys(name for row in found["rows"] for name in row["secs"]))
    known = {(*_of(row), row["threads"]): row["secs"]["dietcode"] for row in first_table}
    ratios = [
        row["secs"]["tree_lstm"] / known[key]
        for row in found["rows"]
        if (key := (*_of(row), row["threads"])) in known and not row.get("disturbed")
    ]
    apart = max((max(ratio, 1 / ratio) for ratio in ratios), default=1.0)
    noise = ""
    if apart > _MOST_APART:
        noise = (
            f" The same calls took up to {apart:.1f} times as long, or as short, in the first table, so that"
        )
        noise += " times here are not told apart."
    for row in found["rows"]:
        times = [f"{1e3 * row['secs'][name]:.2f}" if name in row["secs"] else "" for name in names]
        if row.get("disturbed"):
            times = ["disturbed", *[""] * (len(names) - 1)]
        kib = (f"{row['bytes'][path] / 1024:.0f}" for path in ("dietcode", "by level"))
        rows.append((_NAMES[row["model"]], row["inputs"], row["batch"], *times, *kib))
    head = ["model", "structures", "batch", *(f"{name} ms" for name in names), "ours KiB", "PyTorch KiB"]
    return [
        "## Parts (Figure 10) and memory (Figure 12)\n",
        wrapped(
            f"""`tree_lstm_before` computes the gates of x of all nodes at once, leaves among them, and was
            tuned without samples; with Python between levels, `tree_lstm` is called for each level by itself.
            Memory is how far one call raises what is resident, in a process of its own.{noise}"""
        ),
        table(head, rows),
    ]


if __name__ == "__main__":
    main()
