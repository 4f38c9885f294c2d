"""The table of blocks: each row of `benchmarks.block_rows` beside PyTorch's best path, and its bar.

    python -m benchmarks.blocks tune [ROW …] [--seconds 300]
    python -m benchmarks.blocks measure [ROW …] [--seconds 240] [--again]

`tune` makes the libraries that ``build/benchmarks/blocks`` lacks, with a cache folder beside them; `measure`
measures the rows that lack a measurement of their library, and writes them to
``blocks.json`` of this device, which keeps the others. Both begin no further row once their seconds are
over, so that a few minutes at a time do.
Measure with nothing else on the machine: every path of an instance in turns, medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.block_rows import ROWS, TableRow
from benchmarks.facts import calm, facts, result_path, write
from dietcode.runtime.manifest import sha256_file

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "benchmarks" / "blocks"
RESULT = result_path("blocks")
Record = dict[str, Any]


def main() -> int:
    """Tune or measure rows; print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("command", choices=("tune", "measure", "table"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all where none is named")
    parser.add_argument("--seconds", type=float, default=240.0, help="no further row begins after these")
    parser.add_argument("--instances", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="measure also what is measured")
    arguments = parser.parse_args()
    names = arguments.rows or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; allowed: {', '.join(ROWS)}")
    steps = {"tune": tune, "measure": measure}
    until, failed = time.monotonic() + arguments.seconds, []
    for name in names if arguments.command in steps else ():
        if time.monotonic() > until:
            print(f"{arguments.command}: the seconds are over before {name}; run it again", flush=True)
            break
        try:
            steps[arguments.command](name, arguments)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name}: exit status {error.returncode}", file=sys.stderr, flush=True)
    if arguments.command != "tune":
        kept = json.loads(RESULT.read_text())["rows"] if RESULT.is_file() else {}
        kept |= {name: json.loads(path.read_text()) for name in ROWS if (path := _result(name)).is_file()}
        results = {name: kept[name] for name in ROWS if name in kept}
        write(RESULT, {"rows": results})
        print(table(results))
    return 1 if failed else 0


def tune(name: str, arguments: argparse.Namespace) -> None:
    """Tune a row that has no library."""
    del arguments
    folder = BUILD / name
    if (folder / "library.so").is_file():
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{name}.yaml"
    path.write_text(yaml.safe_dump(ROWS[name].spec(name), sort_keys=False))
    command = [sys.executable, "-m", "dietcode", "tune", str(path), "-o", str(folder)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"DIETCODE_CACHE": str(BUILD / "cache")}, check=True)


def measure(name: str, arguments: argparse.Namespace) -> None:
    """Measure a row, in a process of its own, unless this library has been measured."""
    row = ROWS[name]
    if not all((BUILD / one / "library.so").is_file() for one in (name, row.beside or name)):
        print(f"{name}: no library; run: python -m benchmarks.blocks tune {name}", flush=True)
        return
    path, digest = _result(name), sha256_file(BUILD / name / "library.so")
    if path.is_file() and not arguments.again and json.loads(path.read_text())["library"] == digest:
        return
    options = [f"--{key}={getattr(arguments, key)}" for key in ("instances", "rounds")]
    scratch = path.with_suffix(".part")
    command = [sys.executable, "-m", "benchmarks.block_worker", name, str(BUILD), str(scratch), *options]
    subprocess.run(command, cwd=ROOT, check=True)
    records = json.loads(scratch.read_text())
    disturbed = [record["shape_vars"] for record in records if record["disturbed"]]
    records = calm(records, name)
    known = {key: value for key, value in facts().items() if key in ("commit", "date")}
    result = known | {"library": digest} | summary(row, records)
    result |= {"disturbed": disturbed, "instances": records}
    path.write_text(json.dumps(result, indent=1) + "\n")
    scratch.unlink()
    print(line(name, result), flush=True)


def _result(name: str) -> Path:
    return BUILD / f"{name}.measured.json"


def summary(row: TableRow, records: Sequence[Record]) -> Record:
    """Return the ratios to the best other path, the share of a copy's bandwidth, and the gap of predictions.

    Returns
    -------
    dict
        ratio, and copy where the bar has it: ``geomean``, ``worst``, ``worst_at``; copy is of instances
        beyond L2, copy_within_l2 of the others, and shares_of_copy has each; prediction_gap: mean and
        worst of ``|predicted / measured - 1|``; bar and is_met, null where none is asked.
    """
    found: Record = {"ratio": over(records, lambda record: float(record["ratio"]))}
    gaps = [abs(record["predicted_secs"] / record["secs"]["dietcode"] - 1) for record in records]
    found["prediction_gap"] = {"mean": float(np.mean(gaps)), "worst": float(max(gaps))}
    found["max_rel_error"] = max(record["max_rel_error"] for record in records)
    if row.bar is None:
        return found | {"bar": None, "is_met": None}
    met = found["ratio"]["geomean"] >= row.bar.mean and found["ratio"]["worst"] >= row.bar.worst
    bar = {"geomean": row.bar.mean, "worst": row.bar.worst}
    large = [record for record in records if record["beyond_l2"]]
    small = [record for record in records if not record["beyond_l2"]]
    if row.bar.copy is not None:
        found["copy_within_l2"] = over(small, share_of_copy) if small else None
        found["shares_of_copy"] = [
            {key: record[key] for key in ("shape_vars", "bytes", "beyond_l2")}
            | {"share": share_of_copy(record)}
            for record in sorted(records, key=lambda record: int(record["bytes"]))
        ]
    if row.bar.copy is not None and large:
        found["copy"] = over(large, share_of_copy)
        met, bar["copy"] = met and found["copy"]["worst"] >= row.bar.copy, row.bar.copy
    return found | {"bar": bar, "is_met": met}


def share_of_copy(record: Record) -> float:
    """Return the seconds of a copy of as many bytes over those of the library."""
    return float(record["secs"]["copy"] / record["secs"]["dietcode"])


def over(records: Sequence[Record], figure: Callable[[Record], float]) -> Record:
    """Return the geometric mean and the worst of a figure, and where it is worst."""
    values = np.array([figure(record) for record in records])
    worst = int(values.argmin())
    mean = float(np.exp(np.log(values).mean()))
    return {"geomean": mean, "worst": float(values[worst]), "worst_at": records[worst]["shape_vars"]}


def table(results: Mapping[str, Record]) -> str:
    """Return all rows: the bar, then geometric mean / worst."""
    return "\n".join(line(name, result) for name, result in results.items())


def line(name: str, result: Record) -> str:
    """Return one row of the table."""
    bar, ratio, gap = result["bar"], result["ratio"], result["prediction_gap"]["mean"]
    asked = f"{bar['geomean']:.2f} / {bar['worst']:.2f}" if bar else "-"
    verdict = {True: "met", False: "MISSED", None: ""}[result["is_met"]]
    share = f", {result['copy']['worst']:.0%} of a copy" if "copy" in result else ""
    where = ",".join(f"{key}={value}" for key, value in ratio["worst_at"].items())
    figures = f"{ratio['geomean']:.2f} / {ratio['worst']:.2f} at {where}{share}"
    return f"{name:<20} {asked:<12} {figures:<44} {verdict:<7} predictions off by {gap:.0%}"


if __name__ == "__main__":
    sys.exit(main())
