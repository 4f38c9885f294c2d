"""The pages of whole models, of every device that has records of them: Nimble's tables beside ours.

    python -m benchmarks.model_page

Made from ``model-*.json`` and ``dispatch.json`` in ``benchmarks/results/<device>/`` alone; writes
``docs/evidence/<device>/models.md``, and the table of `DEVICE` in docs/models.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence.__main__ import OUTPUT
from benchmarks.evidence.pages import to_be_known, write_index
from benchmarks.evidence.versions import note_generators
from benchmarks.facts import RESULTS, ROOT, between_marks, device_name
from benchmarks.markdown import table, wrapped

_PEERS = {
    "torch-eager": "PyTorch eager",
    "torch-compile-freezing": "torch.compile",
    "aotinductor": "AOTInductor",
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-optimized": "ONNX Runtime, optimized for transformers",
    "openvino": "OpenVINO",
}
# Tables 1 and 3 of the paper, of its Intel CPU with 18 cores: microseconds a token.
_PAPER_LSTM = {
    "one layer": {"Nimble": 47.8, "PyTorch": 103.6, "MXNet": 212.9, "TensorFlow": 301.4, "DyNet": 936.4},
    "two layers": {"Nimble": 97.2, "PyTorch": 224.0, "MXNet": 401.7, "TensorFlow": 687.3, "DyNet": 2350.8},
}
_PAPER_BERT = {"Nimble": 307.0, "MXNet": 455.8, "PyTorch": 479.5, "TensorFlow": 768.7}
_PAPER_OVERHEAD = (19.38, 24.32, 21.06, 3.26)  # Table 4, of its Intel CPU: milliseconds
_LSTM = {"model-lstm-full": "one layer", "model-lstm-two": "two layers"}
_BERT, _LENGTH = "model-bert-full", 128
_MOST_APART = 1.25  # of calls alone and in turns, where the machine kept its speed
DEVICE = "amd-epyc-family-25-model-17-2-cores"  # whose table docs/models.md has
PAGE = ROOT / "docs" / "models.md"
Row = dict[str, Any]


def main() -> None:
    """Write the page of each device, and the list of all pages."""
    note_generators()
    for folder in folders():
        path = page_path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(folder))
        print(path.relative_to(ROOT))
    write_index(OUTPUT)
    PAGE.write_text(with_summary(PAGE.read_text()))


def with_summary(text: str) -> str:
    """Return docs/models.md with today's table of `DEVICE` between its marks.

    Raises
    ------
    SystemExit
        It has no marks.
    """
    lines = []
    for name, found in _records(RESULTS / DEVICE).items():
        rows = found["rows"]
        ratios = ["disturbed" if row["disturbed"] else f"{row['ratio']:.2f}" for row in rows]
        mean, worst = f"{found['geometric_mean']:.2f}{_of_how_many(rows)}", f"{found['worst']:.2f}"
        sizes = ", ".join(map(_size, rows))
        lines.append([name.removeprefix("model-"), sizes, ", ".join(ratios), f"{mean} / {worst}"])
    head = ["model", "sizes", "times the best other", "mean / worst"]
    return between_marks(text, "benchmarks.model_page", [table(head, lines).rstrip()], PAGE)


def folders() -> list[Path]:
    """The folders of results in which a model has a record that says what its memory is planned to."""
    return sorted({path.parent for path in RESULTS.glob("*/model-*.json") if _is_of_today(_read(path))})


def page_path(folder: Path) -> Path:
    """Where the page of a folder of results is."""
    return OUTPUT / folder.name / "models.md"


def page(folder: Path) -> str:
    """Return the page of the device whose records a folder has."""
    records = _records(folder)
    first = next(iter(records.values()))
    parts = [
        f"# Whole models: {device_name(first)}\n",
        wrapped(
            f"""Written by `python -m benchmarks.model_page`. Float32, random weights, all paths in turns in
            one process, medians; PyTorch {first["versions"]["torch"]}. Rows that something disturbed have no
            figure. The paper, Nimble (MLSys 2021), measured sentences of the MRPC corpus on other machines,
            with other software: its numbers stand beside ours, they do not compare with them; sizes here are
            single ones. AOTInductor compiles PyTorch's own export, or ours of a model which that refuses. A
            row is disturbed where the median of some path's readings is 1.25 times its fastest or more,
            whatever the cause, or where something else ran. *Alone*, *kernels* and *host* are of a run of
            their own, which nothing watches. The paper's Table 2, of tree-LSTM, is of structures:
            {_of_structures(folder)}. Its GPU and its ARM CPU are not measured."""
        ),
        "## Models\n",
        *(_of_model(name, found) for name, found in records.items()),
        *_beside_lstm(records),
        *_beside_bert(records),
        *_overhead(records),
        *_memory(records),
    ]
    dispatch = folder / "dispatch.json"
    if dispatch.exists():
        parts += _of_dispatch(_read(dispatch))
    return "\n".join(parts).rstrip() + "\n"


def _records(folder: Path) -> dict[str, Row]:
    records = {path.stem: _read(path) for path in sorted(folder.glob("model-*.json"))}
    return {name: found for name, found in records.items() if _is_of_today(found)}


def _of_structures(folder: Path) -> str:
    if not page_path(folder).with_name("recursion.md").exists():
        return "not measured on this device"
    return "see [recursions](recursion.md), of the sizes of the Cortex paper"


def _read(path: Path) -> Row:
    found: Row = json.loads(path.read_text())
    return found


def _is_of_today(found: Row) -> bool:
    return all("memory" in row for row in found.get("rows", [{}]))


def _size(row: Row) -> str:
    return "×".join(map(str, row["size"]))


def _of_model(name: str, found: Row) -> str:
    peers = [peer for peer in _PEERS if any(peer in row["secs"] for row in found["rows"])]
    missing = [f"{_PEERS.get(peer, peer)}: {why}" for peer, why in found.get("missing", {}).items()]
    rows = []
    for row in found["rows"]:
        if row["disturbed"]:
            rows.append([_size(row), "disturbed", *[""] * (len(peers) + 2)])
            continue
        times = [_short(row["secs"][peer] * 1e3) if peer in row["secs"] else "" for peer in peers]
        first = f"{row['first_secs'] / row['secs']['dietcode']:.1f}"
        rows.append([_size(row), _short(row["secs"]["dietcode"] * 1e3), *times, f"{row['ratio']:.2f}", first])
    head = ["size", "ours ms", *(f"{_PEERS[peer]} ms" for peer in peers), "best other ×", "first call ×"]
    told = f"""`{name}.json`, commit {found["commit"]}, {found["date"]}: {found["geometric_mean"]:.2f} × the
        speed of the fastest other in geometric mean{_of_how_many(found["rows"])}, {found["worst"]:.2f} at
        worst.{to_be_known(found)}"""
    left_out = wrapped("Left out: " + "; ".join(missing) + ".") if missing else ""
    return "\n".join([f"### {name.removeprefix('model-')}\n", wrapped(told), table(head, rows), left_out])


def _of_how_many(rows: list[Row]) -> str:
    """Over how many of the sizes a mean is, where something disturbed some."""
    calm = sum(not row["disturbed"] for row in rows)
    return f" ({calm} of {len(rows)})" if calm < len(rows) else ""


def _calm(found: Row, batch: int) -> list[Row]:
    return [row for row in found["rows"] if not row["disturbed"] and row["size"][0] == batch]


def _a_token(row: Row) -> dict[str, str]:
    tokens = row["size"][0] * row["size"][1]
    named = {"dietcode": "ours"} | _PEERS
    return {named[name]: _short(secs / tokens * 1e6) for name, secs in row["secs"].items() if name in named}


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _told(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _beside_lstm(records: dict[str, Row]) -> Iterable[str]:
    rows = [
        [layers, _size(row), _told(_PAPER_LSTM[layers]), _told(_a_token(row))]
        for name, layers in _LSTM.items()
        for row in _calm(records.get(name, {"rows": []}), 1)
    ]
    if rows:
        yield "## Table 1: LSTM, 300/512\n"
        yield wrapped("Microseconds a token, batch 1. The model here also has an embedding and a classifier.")
        yield table(["layers", "batch × length", "paper, Intel", "here"], rows)


def _beside_bert(records: dict[str, Row]) -> Iterable[str]:
    rows = [
        [_size(row), _told(_PAPER_BERT), _told(_a_token(row))]
        for row in _calm(records.get(_BERT, {"rows": []}), 1)
    ]
    if rows:
        yield "## Table 3: BERT-base\n"
        yield wrapped("Microseconds a token.")
        yield table(["batch × length", "paper, Intel", "here"], rows)


def _agree(row: Row) -> bool:
    """Whether the readings of a row are of one speed of the machine."""
    own, alone = row["secs"]["dietcode"], row["alone_secs"]
    return max(own, alone) <= _MOST_APART * min(own, alone) and row["kernel_secs"] <= alone


def _overhead(records: dict[str, Row]) -> Iterable[str]:
    rows: list[Sequence[str]] = []
    for name, found in records.items():
        for row in found["rows"]:
            if row["disturbed"]:
                continue
            static = row["secs"].get("dietcode-static")
            times = (row["secs"]["dietcode"], row["alone_secs"], row["kernel_secs"], row["host_secs"])
            told = [f"{1e3 * one:.3g}" for one in times]
            share = f"{row['host_secs'] / (row['host_secs'] + row['kernel_secs']):.1%}"
            if not _agree(row):
                share = "does not add up"
            of_static = "" if static is None else f"{1e3 * static:.3g}"
            ratio = "" if static is None else f"{static / row['secs']['dietcode']:.2f}"
            rows.append([name.removeprefix("model-"), _size(row), of_static, *told, share, ratio])
    if rows:
        static, own, kernels, others = _PAPER_OVERHEAD
        yield "## Table 4: what dynamism costs\n"
        yield wrapped(
            f"""The paper's BERT of {_LENGTH} tokens on its Intel CPU: {static} ms as TVM's static build,
            {own} as Nimble's, of which kernels {kernels} and the rest {others}, {others / own:.0%}. Here the
            static build is a bundle that was compiled for one size alone; kernels and host are of calls
            that are timed step by step, alone; the host's are views, positions, concatenations and what else
            NumPy computes. A row does not add up where the machine's speed changed meanwhile: calls alone
            and in turns differ by more than a quarter, or kernels take longer than their calls."""
        )
        head = [
            "model",
            "size",
            "static ms",
            "ours ms",
            "alone",
            "kernels",
            "host",
            "host's share",
            "of static",
        ]
        yield table(head, rows)


def _memory(records: dict[str, Row]) -> Iterable[str]:
    rows = []
    for name, found in records.items():
        for row in found["rows"]:
            own = row["memory"]
            keys = ("secs_apart", "secs_apart_touched", "secs_first", "secs_first_touched")
            times = ["" if row["disturbed"] else f"{1e6 * own[key]:.1f}" for key in keys]
            static = f"{own['bytes_static'] / 2**20:.2f}" if "bytes_static" in own else ""
            sizes = [f"{own[key] / 2**20:.2f}" for key in ("bytes_apart", "bytes")]
            counts = [own["values"], own["storages"], f"{1 - own['storages'] / max(1, own['values']):.0%}"]
            rows.append([name.removeprefix("model-"), _size(row), *counts, *sizes, static, *times])
    yield "## Memory planning (section 5.3)\n"
    yield wrapped(
        """The paper's plan makes 47 % fewer allocations and takes 75 % less time for them than an allocation
        for each value, and up to 8 % more memory than a static plan. Here values that live at different times
        share storages, all of which are one piece of memory: the first call of a size allocates it, later
        calls of sizes that are no larger nothing but their outputs. Without a plan each call would allocate
        each value, in the time given (µs, untouched and with every page written once)."""
    )
    head = ["model", "size", "values", "storages", "fewer", "MB apart", "MB planned", "MB static"]
    yield table([*head, "µs apart", "written", "µs of the first call", "written"], rows)


def _of_dispatch(found: Row) -> Iterable[str]:
    names = list(found["rows"][-1]["secs"])
    rows = []
    for row in found["rows"]:
        if row["disturbed"]:
            times = ["disturbed", *[""] * (len(names) - 1)]
        else:
            base = row["secs"].get("static", row["secs"]["at most 8"])
            times = [f"{row['secs'][name] / base:.2f}" if name in row["secs"] else "" for name in names]
        kernels = ", ".join(str(row["num_kernels"][name]) for name in names if name != "static")
        rows.append([row["layer"], row["tokens"], *times, kernels])
    yield "## Figure 3: kernels to choose from\n"
    yield wrapped(
        f"""Seconds over those of a library that was tuned for 128 tokens alone; at other lengths over those
        of at most eight micro-kernels. Dense layers of BERT, tuned for 1 to 128 tokens ({found["trials"]}
        trials, {found["seconds"]:g} s), commit {found["commit"]}, {found["date"]}. The paper's kernels differ
        in what remains of the length divided by the tile, on an ARM CPU; ours in their tiles, chosen by
        length. The last column says how many micro-kernels were chosen of those that were
        allowed.{to_be_known(found)}"""
    )
    yield table(["layer", "tokens", *names, "micro-kernels"], rows)


if __name__ == "__main__":
    main()
