"""Every CPU workload in float32: tuned by the command, then measured beside PyTorch and the roofline.

    python -m benchmarks.cpu [--workloads bert-dense,…] [--instances 16] [--keep] [--cold]
                             [--tune-only] [--metaschedule K] [--alone]

Writes ``cpu-<workload>.json`` of this device in ``benchmarks/results`` and prints a table. All runs of
`dietcode tune` share a cache folder that is empty at first, so that later ones profit from what the first
learned of the device; with ``--cold`` each has an empty one. Libraries and seconds of tuning stay in
``build/benchmarks``, where ``--keep`` finds them. Run it with nothing else on the machine; where that is to
be had for minutes only, tune with ``--tune-only`` and measure with ``--keep``, a workload at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import per_shape
from benchmarks.facts import calm, done_once, result_path, write
from dietcode.bench.compare import spread
from dietcode.workload.parse import load_spec

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "benchmarks"
# Where each range is told apart in few and many rows, if it is: a variable and its first large value.
WORKLOADS: dict[str, tuple[str, int] | None] = {
    "bert-dense": ("T", 24),
    "bert-dense-proj": ("T", 24),
    "bert-dense-ffn1": ("T", 24),
    "bert-dense-ffn2": ("T", 24),
    "bert-dense-ffn1-gelu": ("T", 24),
    "bert-dense-proj-residual": ("T", 24),
    "bert-dense-varying": ("T", 24),
    "bert-dense-hidden": None,
    "dense-rows": ("M", 24 * 16),
    "bert-bmm-qk": None,
    "bert-bmm-pv": None,
    "two-dims": None,
    "resnet50-conv3x3": None,
    "resnet50-conv1x1": None,
    "resnet50-conv7x7": None,
    "resnet50-conv-late": None,
}
Row = dict[str, Any]


def main() -> int:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--instances", type=int, default=16, help="0 for all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3, help="over all instances")
    parser.add_argument("--keep", action="store_true", help="use libraries of an earlier run")
    parser.add_argument("--tune-only", action="store_true", help="measure nothing: --keep does it later")
    parser.add_argument("--cold", action="store_true", help="tune each with an empty cache")
    parser.add_argument("--alone", action="store_true", help="time PyTorch in a process of its own as well")
    parser.add_argument("--metaschedule", type=int, default=0, metavar="K", help="tune K shapes alone, too")
    parser.add_argument("--trials", type=int, default=128, help="of MetaSchedule, for each shape")
    arguments = parser.parse_args()
    names = arguments.workloads.split(",")
    unknown = [name for name in names if not spec_path(name).is_file()]
    if unknown:
        parser.error(f"no examples/ for {', '.join(unknown)}; allowed: {', '.join(WORKLOADS)}")
    results, failed = [], []
    with tempfile.TemporaryDirectory(prefix="dietcode-benchmark-") as cache:
        for name in names:
            try:
                if arguments.tune_only:
                    print(name, tune(name, BUILD / name, arguments, Path(cache)), flush=True)
                else:
                    results.append(measure(name, arguments, Path(cache)))
            except subprocess.CalledProcessError as error:
                failed.append(f"{name}: {' '.join(map(str, error.cmd))}: exit status {error.returncode}")
                print(failed[-1], file=sys.stderr, flush=True)
    if results:
        print(table(results))
    return 1 if failed else 0


def spec_path(name: str) -> Path:
    """The spec of a workload."""
    return ROOT / "examples" / f"{name}.yaml"


def measure(name: str, arguments: argparse.Namespace, cache: Path) -> Row:
    """Tune and measure one workload, and write what was found."""
    folder = BUILD / name
    tuning = tune(name, folder, arguments, cache)
    print(name, tuning, flush=True)
    counts = ("instances", "rounds", "passes")
    options = [word for name in counts for word in (f"--{name}", str(getattr(arguments, name)))]
    found = worker(folder, *options)
    report = json.loads((folder / "report.json").read_text())
    result: Row = {
        "workload": name,
        "tuning": tuning,
        "num_micro_kernels": len(report["selection"]["micro_kernels"]),
        "library_bytes": (folder / "library.so").stat().st_size,
        "rounds": arguments.rounds,
        "passes": arguments.passes,
        "threads": found["threads"],
        "backends": found["backends"],
        "summary": summary(found["instances"], WORKLOADS.get(name)),
    }
    if arguments.alone:
        result |= worker(folder, *options, "--alone")
    if arguments.metaschedule:
        result["metaschedule"] = metaschedule(name, folder, found["instances"], arguments)
    result["instances"] = found["instances"]
    write(result_path(f"cpu-{name}"), result)
    return result


def tune(name: str, folder: Path, arguments: argparse.Namespace, cache: Path) -> Row:
    """Run the command, and note how long it took beside the library."""
    note = folder.with_name(f"{name}.tuning.json")
    if arguments.keep and (folder / "library.so").exists():
        kept: Row = json.loads(note.read_text()) if note.exists() else {"secs": None}
        return kept
    where = cache / name if arguments.cold else cache
    command = [sys.executable, "-m", "dietcode", "tune", str(spec_path(name)), "-o", str(folder)]
    environment = os.environ | {"DIETCODE_CACHE": str(where)}
    _, secs, disturbed = done_once(lambda: subprocess.run(command, cwd=ROOT, env=environment, check=True))
    is_cold = arguments.cold or not any_other(cache, name)
    found = {"secs": secs, "cold": is_cold, "disturbed": disturbed}
    (cache / f"{name}.tuned").touch()
    note.write_text(json.dumps(found) + "\n")
    return found


def any_other(cache: Path, name: str) -> bool:
    """Whether another workload was tuned with this cache."""
    return any(path.stem != name for path in cache.glob("*.tuned"))


def worker(folder: Path, *options: str) -> Row:
    """What `benchmarks.cpu_worker` finds."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "result.json"
        command = [sys.executable, "-m", "benchmarks.cpu_worker", str(folder), str(path), *options]
        subprocess.run(command, cwd=ROOT, check=True)
        found: Row = json.loads(path.read_text())
        return found


def metaschedule(name: str, folder: Path, rows: Sequence[Row], arguments: argparse.Namespace) -> Row:
    """MetaSchedule for some shapes alone; it has runs only of einsums without epilogue."""
    spec = load_spec(spec_path(name))
    if len(spec.shape_vars) != 1 or spec.op.epilogue or spec.op.einsum is None:
        return {"skipped": "needs an einsum without epilogue, of one shape variable"}
    (variable,) = spec.shape_vars
    values = [rows[i]["shape_vars"][variable] for i in spread(len(rows), arguments.metaschedule)]
    listed = f"{variable}={','.join(map(str, values))}"
    per_shape.tune(spec_path(name), listed, arguments.trials, per_shape.MAX_SECS)
    measured = [
        per_shape.measure(
            folder, {variable: value}, per_shape.default_databases(name) / str(value), per_shape.TOP, 15
        )
        for value in values
    ]
    return {"summary": per_shape.summary(measured), "instances": measured}


def summary(rows: Sequence[Row], split: tuple[str, int] | None) -> Row:
    """Ratios above 1 where the library is faster, fractions of the roofline, error."""
    num_rows, rows = len(rows), calm(rows, "the summary")
    peaks, reads = ([row[key] for row in rows] for key in ("peak_gflops", "read_gbytes_per_sec"))
    result = {
        "ratio": over(rows, ratio),
        "ratio_to_eager": over(rows, ratio_to_eager),
        "of_roof": over(rows, lambda row: float(row["of_roof"])),
        "num_disturbed": num_rows - len(rows),
        "max_rel_error": max(row["max_rel_error"] for row in rows),
        "peak_gflops": [min(peaks), float(np.median(peaks)), max(peaks)],
        "read_gbytes_per_sec": [min(reads), float(np.median(reads)), max(reads)],
    }
    if split is not None:
        name, first = split
        few = [row for row in rows if row["shape_vars"][name] < first]
        many = [row for row in rows if row["shape_vars"][name] >= first]
        for title, part in ((f"{name}<{first}", few), (f"{name}>={first}", many)):
            if part:
                result[title] = {"ratio": over(part, ratio), "ratio_to_eager": over(part, ratio_to_eager)}
    return result


def ratio(row: Row) -> float:
    """The library's rate over that of the fastest path of PyTorch."""
    return float(row["measured_gflops"] / max(row["vendors"].values()))


def ratio_to_eager(row: Row) -> float:
    """The library's rate over that of PyTorch's faster eager path."""
    eager = [rate for name, rate in row["vendors"].items() if name.startswith("torch-eager")]
    return float(row["measured_gflops"] / max(eager))


def over(rows: Sequence[Row], figure: Callable[[Row], float]) -> Row:
    """Geometric mean and worst of a figure, and where."""
    values = np.array([figure(row) for row in rows])
    worst = int(values.argmin())
    return {
        "geomean": float(np.exp(np.log(values).mean())),
        "worst": float(values[worst]),
        "worst_at": rows[worst]["shape_vars"],
    }


def table(results: Sequence[Row]) -> str:
    """All workloads; each figure is its geometric mean / the worst."""
    heads = " ".join(f"{text:<12}" for text in ("× vendor", "× eager", "of roof"))
    lines = [f"{'workload':<26} {'tuning':>7} {'kernels':>7}  {heads} × vendor by rows"]
    for result in results:
        found, secs = result["summary"], result["tuning"]["secs"]
        cells = " ".join(f"{pair(found[key]):<12}" for key in ("ratio", "ratio_to_eager", "of_roof"))
        parts = [f"{key}: {pair(value['ratio'])}" for key, value in found.items() if "<" in key or ">" in key]
        tuning = "-" if secs is None else f"{secs:.0f} s"
        name, kernels = result["workload"], result["num_micro_kernels"]
        lines.append(f"{name:<26} {tuning:>7} {kernels:>7}  {cells} {', '.join(parts)}")
    return "\n".join(lines)


def pair(figures: Row) -> str:
    """As in ``1.06 / 0.96``."""
    return f"{figures['geomean']:.2f} / {figures['worst']:.2f}"


if __name__ == "__main__":
    sys.exit(main())
