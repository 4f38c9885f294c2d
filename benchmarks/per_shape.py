"""A library for a range of shapes beside MetaSchedule tuned for each shape alone.

    python -m benchmarks.per_shape tune SPEC [--instances T=5,24,…] [--trials 128]
    python -m benchmarks.per_shape compare LIBRARY [--databases DIR] [--top 8] [--rounds 15]
    python -m benchmarks.per_shape curve LIBRARY [--databases DIR] [--top 8] [--rounds 15]

`tune` gives every shape a run of its own, in ``build/benchmarks/per-shape-<name>/<value>/``; what is there
already is not measured again. `compare` builds the fastest schedules of each database as they are meant to
run, the constant weights already in the layout that the schedule asks for, checks them against float64, and
times the best one and the library in turns: bare calls, same process, threads, memory and input. `curve` does
so for the first 16, 32, 64, … trials of each database, as a smaller budget would have left them: a curve that
has not yet ended shows how much a larger budget would bring. It keeps what it has measured. Run them with
nothing else on the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import calm, middle_half, result_path, write
from dietcode.bench.compare import spread
from dietcode.runtime.cpu import available_cores
from dietcode.search_space.cpu.seed import run_seed
from dietcode.search_space.problem import extents_of, problem_from_spec
from dietcode.search_space.seed import NoTrialError
from dietcode.target.cpu import resolve_target
from dietcode.workload.parse import load_spec

ROOT = Path(__file__).resolve().parent.parent
_RECORDS, _NOTE = "database_tuning_record.json", "tuning.json"
_NUM_INSTANCES = 8
MAX_SECS, TOP = 600.0, 8  # of tuning for each shape; schedules to build for each
_BUILD_SECS, _RACE_SECS = 120.0, 600.0
_FLAT = 0.02  # of throughput


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    tuning = commands.add_parser("tune", help="tune each shape alone")
    tuning.add_argument("spec", type=Path)
    tuning.add_argument("--instances", help="VARIABLE=VALUE,…; by default some over the whole range")
    tuning.add_argument("--trials", type=int, default=128, help="for each shape")
    tuning.add_argument("--max-secs", type=float, default=MAX_SECS, help="for each shape")
    comparing = commands.add_parser("compare", help="measure a library beside what `tune` found")
    curving = commands.add_parser("curve", help="the same for smaller budgets")
    for parsed in (comparing, curving):
        parsed.add_argument("library", type=Path)
        parsed.add_argument("--databases", type=Path, help="folder with a folder for each value")
        parsed.add_argument("--top", type=int, default=TOP, help="schedules to build for each shape")
        parsed.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.command == "tune":
        tune(arguments.spec, arguments.instances, arguments.trials, arguments.max_secs)
    else:
        run = {"compare": compare, "curve": curve}[arguments.command]
        run(arguments.library, arguments.databases, arguments.top, arguments.rounds)


def default_databases(name: str) -> Path:
    """Where `tune` writes for a workload."""
    return ROOT / "build" / "benchmarks" / f"per-shape-{name}"


def tune(path: Path, instances: str | None, num_trials: int, max_secs: float) -> None:
    """Tune each shape and note its seconds, those of earlier runs added."""
    spec = load_spec(path)
    problem, target = problem_from_spec(spec), resolve_target(spec.target)
    if len(spec.shape_vars) != 1:
        raise SystemExit(f"{path}: {len(spec.shape_vars)} shape variables; allowed: 1")
    ((variable, facts),) = spec.shape_vars.items()
    every = [value for value in range(facts.min, facts.max + 1) if value in facts]
    values = [every[i] for i in spread(len(every), _NUM_INSTANCES)]
    if instances is not None:
        name, _, listed = instances.partition("=")
        values = [int(value) for value in listed.split(",") if value]
        if name != variable or not set(values) <= set(every):
            raise SystemExit(f"--instances: given {instances}; allowed: {variable}={facts.allowed()}")
    for value in values:
        folder = default_databases(spec.name) / str(value)
        if num_records(folder) >= num_trials:
            print(variable, value, "is tuned")
            continue
        extents = extents_of(spec, {variable: value})
        try:
            _, found = run_seed(problem, extents, target, folder, num_trials, max_secs)
        except NoTrialError as error:
            print(variable, value, error)
            continue
        secs = (tuning_secs(folder) or 0.0) + found["secs"]
        (folder / _NOTE).write_text(json.dumps({"secs": secs}) + "\n")
        print(variable, value, found["trials"], "trials,", f"{secs:.0f} s, {found['best_gflops']} GFLOP/s")


def num_records(folder: Path) -> int:
    """Trials in a database, failed ones among them."""
    path = folder / _RECORDS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def tuning_secs(folder: Path) -> float | None:
    """Seconds that `tune` noted; None where something else filled the database."""
    path = folder / _NOTE
    return float(json.loads(path.read_text())["secs"]) if path.exists() else None


def _databases(library: Path, databases: Path | None) -> tuple[str, str, dict[int, Path]]:
    """Name and variable of a library's workload, and the database of each value.

    Raises
    ------
    SystemExit
        MetaSchedule's runs cannot be of it, or there are none.
    """
    manifest = json.loads((library / "manifest.json").read_text())
    name, variables = manifest["name"], manifest["variable_order"]
    if len(variables) != 1 or manifest["workload"]["op"]["epilogue"]:
        raise SystemExit(
            f"{library}: needs one shape variable and no epilogue, which MetaSchedule's runs lack"
        )
    folder = databases or default_databases(name)
    found = {int(path.parent.name): path.parent for path in folder.glob(f"[0-9]*/{_RECORDS}")}
    if not found:
        raise SystemExit(f"{folder}: no databases; run: python -m benchmarks.per_shape tune SPEC")
    return name, variables[0], found


def compare(library: Path, databases: Path | None, top: int, rounds: int) -> None:
    """Measure at every shape that has a database, and write JSON."""
    name, variable, found = _databases(library, databases)
    rows = []
    for value in sorted(found):
        rows.append(measure(library, {variable: value}, found[value], top, rounds))
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "workload": name,
        "top": top,
        "rounds": rounds,
        "threads": available_cores(),
        "summary": summary(rows),
        "instances": rows,
    }
    print(result["summary"])
    write(result_path(f"per-shape-{name}"), result)


def curve(library: Path, databases: Path | None, top: int, rounds: int) -> None:
    """Measure every shape for the first trials of its database, and write JSON after each reading."""
    name, variable, found = _databases(library, databases)
    path = result_path(f"per-shape-curve-{name}")
    kept = json.loads(path.read_text()) if path.exists() else {}
    same = kept.get("library") == digest_of(library)
    rows: dict[tuple[int, int], dict[str, Any]] = {
        (row["shape_vars"][variable], row["trials"]): row for row in (kept["rows"] if same else ())
    }
    for value, database in sorted(found.items()):
        for trials in budgets(num_records(database)):
            row = rows.get((value, trials))
            if row is None or row.get("disturbed"):
                with first_records(database, trials) as part:
                    row = measure(library, {variable: value}, part, top, rounds)
                rows[value, trials] = row
                ordered = [rows[key] for key in sorted(rows)]
                facts = {"workload": name, "library": digest_of(library), "top": top, "rounds": rounds}
                write(path, facts | {"rows": ordered, "shapes": flat_parts(ordered)})
            print(variable, value, trials, row.get("ratio"), row.get("disturbed"), flush=True)


def digest_of(library: Path) -> str:
    """Of a library's code."""
    return hashlib.sha256((library / "library.so").read_bytes()).hexdigest()


def budgets(num_trials: int) -> list[int]:
    """The powers of two from 16 on that a database has trials for, and all of them."""
    powers = [1 << power for power in range(4, 16) if 1 << power <= num_trials]
    return sorted({*powers, num_trials})


@contextmanager
def first_records(database: Path, num_trials: int) -> Iterator[Path]:
    """Yield a database with the first trials of another, in the order in which they were measured."""
    with tempfile.TemporaryDirectory(prefix="dietcode-bench-") as place:
        folder = Path(place) / database.name
        shutil.copytree(database, folder)
        lines = (database / _RECORDS).read_bytes().splitlines(keepends=True)
        (folder / _RECORDS).write_bytes(b"".join(lines[:num_trials]))
        yield folder


def flat_parts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where the curve of each shape ends, and whether it is flat there.

    It is where twice the trials brought less than 2 % of throughput; disturbed readings say nothing. The
    library is the same beside all budgets, so that the median of its readings counts.
    """
    by_shape: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "ratio" in row and not row["disturbed"]:
            by_shape.setdefault(json.dumps(row["shape_vars"], sort_keys=True), []).append(row)
    found = []
    for own in by_shape.values():
        best = np.maximum.accumulate([row["metaschedule_gflops"] for row in own])
        gain = float(best[-1] / best[-2] - 1.0) if len(best) > 1 else None
        is_doubled = len(own) > 1 and own[-1]["trials"] >= 2 * own[-2]["trials"]
        found.append(
            {
                "shape_vars": own[-1]["shape_vars"],
                "trials": own[-1]["trials"],
                "gain_of_last": gain,
                "is_flat": gain is not None and is_doubled and gain < _FLAT,
                "ratio": float(np.median([row["dietcode_gflops"] for row in own]) / best[-1]),
            }
        )
    return found


def measure(
    library: Path,
    binding: dict[str, int],
    database: Path,
    top: int,
    rounds: int,
    vendors: Sequence[str] = (),
) -> dict[str, Any]:
    """One row: both rates, those of vendors where asked, and what they come from.

    Beside vendors the library is called as its users do, not barely.
    """
    facts: dict[str, Any] = {
        "shape_vars": binding,
        "trials": num_records(database),
        "tuning_secs": tuning_secs(database),
    }
    request = {"library": str(library.resolve()), "binding": binding}
    with tempfile.TemporaryDirectory(prefix="dietcode-bench-") as place:
        built, failed = build_top(request | {"database": str(database.resolve())}, Path(place), top)
        if not built:
            return facts | {"failed": failed or ["no records"]}
        asked = {"modules": built, "rounds": rounds, "vendors": list(vendors)}
        found = ask("race", request | asked, _RACE_SECS)
    if isinstance(found, str):
        return facts | {"failed": [*failed, found]}
    rates = {name: found["flops"] / secs / 1e9 for name, secs in found["secs"].items()}
    between = {name: middle_half(found["flops"], pair) for name, pair in found["quartiles"].items()}
    return (
        facts
        | {
            "failed": failed,
            "num_built": len(built),
            "best_rank": int(Path(found["best"]).stem),
            "metaschedule_code_bytes": found["code_bytes"],
            "metaschedule_recorded_gflops": found["flops"] / min(b["recorded_secs"] for b in built) / 1e9,
            "metaschedule_gflops": rates["metaschedule"],
            "dietcode_gflops": rates["dietcode"],
            "gflops_between": between,
            "ratio": rates["dietcode"] / rates["metaschedule"],
            "max_rel_errors": found["errors"],
            "disturbed": found["disturbed"],
        }
        | ({"vendors": {name: rates[name] for name in found["vendors"]}} if vendors else {})
    )


def build_top(request: dict[str, Any], place: Path, top: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Build and check the first schedules of a database, each in a process of its own.

    Returns
    -------
    list of dict, list of str
        What was built, and why the others were not.
    """

    def build(rank: int) -> dict[str, Any] | str:
        return ask("build", request | {"rank": rank, "path": str(place / f"{rank}.so")}, _BUILD_SECS)

    with ThreadPoolExecutor(available_cores()) as workers:
        answers = list(workers.map(build, range(min(top, num_records(Path(request["database"]))))))
    return [a for a in answers if not isinstance(a, str)], [a for a in answers if isinstance(a, str)]


def bytes_together(records: Sequence[tuple[str, int]]) -> int | None:
    """Bytes of one library of several shapes' kernels, each a database and its record; None without one."""
    with tempfile.TemporaryDirectory(prefix="dietcode-bench-") as place:
        asked = {"records": list(records), "path": str(Path(place) / "together.so")}
        found = ask("together", asked, _BUILD_SECS)
    return None if isinstance(found, str) else int(found["bytes"])


def ask(command: str, request: dict[str, Any], timeout_secs: float) -> dict[str, Any] | str:
    """The worker's answer, or why there is none."""
    threads = {"TVM_NUM_THREADS": str(available_cores()), "TVM_BIND_THREADS": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.per_shape_worker", command],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | threads | {"OPENBLAS_NUM_THREADS": "1"},
            timeout=timeout_secs,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{command}: no answer within {timeout_secs:.0f} s"
    if done.returncode != 0:
        last = " ".join(line.strip() for line in done.stderr.splitlines()[-3:])
        return f"{command}: exit status {done.returncode}: {last[-300:]}"
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """DietCode's rate over MetaSchedule's, above 1 where the library is faster."""
    measured = [row for row in rows if "ratio" in row]
    if not measured:
        return {"num_failed": len(rows)}
    num_failed = len(rows) - len(measured)
    measured = calm(measured, "the summary")
    ratios = np.array([row["ratio"] for row in measured])
    worst = int(ratios.argmin())
    secs = [row["tuning_secs"] for row in measured]
    return {
        "ratio_geomean": float(np.exp(np.log(ratios).mean())),
        "ratio_worst": float(ratios[worst]),
        "worst_at": measured[worst]["shape_vars"],
        "max_rel_error": max(max(row["max_rel_errors"].values()) for row in measured),
        "metaschedule_trials": sum(row["trials"] for row in measured),
        "metaschedule_secs": None if None in secs else sum(secs),
        "num_failed": num_failed,
    }


if __name__ == "__main__":
    main()
