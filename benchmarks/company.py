"""How fast a library is in a program that computes with others as well, and how fast these stay.

    python -m benchmarks.company [--library DIR] [--tiny DIR] [--sizes 1,8,49,166] [--threads auto]
        [--situations alone,torch,…] [--secs 0.3] [--rounds 3] [--prepare] [--keep]

Without folders two small workloads are tuned first, where they are not in ``build/benchmarks`` yet:
Y[S, 1531] = X[S, 419] · W[1531, 419]ᵀ, and 1x192 times 7x192 for what a call costs; ``--prepare`` does no
more than that. All takes less than five minutes then. Each situation and size has a process of its own. In it
every round goes in turns through slices of the library alone, in company, and of the partner alone, with
pauses between them, as what another pool of threads spins would count as the next one's; medians of the
rounds count. Rates are means over all calls of a round: what a pool loses, it loses in some of them. What
is measured while other processes compute is measured again. Writes ``company.json`` in the folder of the
device's results, with the bar beside each figure that has one; with ``--keep`` the rows that this run does
not measure stay as they are, where they are of the same library, so that a few minutes at a time do.
Situations:

- ``alone``: beside the same code on the threads of TVM's runtime;
- ``torch``, ``numpy``: calls take turns with the partner's of the same operator, PyTorch's also of another;
  ``control`` and ``partner_control`` are what either keeps of its speed in turns with itself, on other
  tensors, and ``partner_reading`` in turns with sums of as many numbers as a call reads: what caches take;
- ``callers``: four Python threads call, and their sum counts; in ``mixed`` two of them with NumPy's arrays;
- ``taken``: another process computes all the time; beside it ``serial``, one thread of the library;
- ``idle-30``, ``idle-200``: bursts of 4 ms after so many milliseconds without a call, from the second call of
  each on, in a process that has used PyTorch; ``control`` is what one thread keeps of its own speed in them,
  which nothing wakes: what caches and the machine take;
- ``calls``: microseconds of a tiny call;
- on request, ``numpy-asleep``: as ``numpy``, where OpenBLAS's threads sleep some microseconds after a product
  (``OPENBLAS_THREAD_TIMEOUT=14``, the binary logarithm of cycles) and not 0.1 s;
- on request, ``compiled``: as ``torch``, with a module of ``torch.compile``, whose weights are frozen;
- on request, ``intel``: as ``torch``, where PyTorch's threads are Intel OpenMP's, which has to be there
  (``pip install intel-openmp``): its library is loaded ahead of PyTorch's own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.company_calls import tiny_calls
from benchmarks.company_rounds import OF_NUMPY, ROUNDS, Row, measure
from benchmarks.dense import dense_spec
from benchmarks.facts import facts, result_path, write
from dietcode.measure.disturbance import machine_of, undisturbed
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.manifest import CODE, sha256_file

ROOT = Path(__file__).resolve().parent.parent
_BUILT = ROOT / "build" / "benchmarks"
CALLS = "calls"
SITUATIONS = (*ROUNDS, CALLS)
_ON_REQUEST = {"compiled", "intel", "numpy-asleep"}
_SMALL_SIZE = 8  # below it other bars hold, or none
_MOST_MICROSECONDS = {"torch": 3.0, "numpy": 2.2, "bound": 1.5, "bound_numpy": 1.5, "operator_of_linear": 1.5}
# Y[S, n] = X[S, k] · W[n, k]ᵀ of the name's library: n, k, the largest S, seconds of tuning.
_WORKLOADS = {"company": (1531, 419, 256, 120), "company-tiny": (7, 192, 4, 20)}


@dataclass(frozen=True)
class Bar:
    """What a figure of a row has to reach, or with `is_most` to stay within."""

    figure: str
    bound: float
    is_most: bool = False

    def told(self, row: Row) -> Row:
        """The figure, the bar, and whether it is met."""
        value, sign = row[self.figure], "≤" if self.is_most else "≥"
        is_met = value <= self.bound if self.is_most else value >= self.bound
        return {"figure": self.figure, "value": value, "bar": f"{sign} {self.bound:g}", "is_met": is_met}


def bars(situation: str, size: int) -> list[Bar]:
    """Return the bars of a situation at a size."""
    is_small = size < _SMALL_SIZE
    if situation == CALLS:
        return [Bar(name, most, is_most=True) for name, most in _MOST_MICROSECONDS.items()]
    if situation == "alone":
        return [Bar(name, 0.9 if is_small else 0.97) for name in ("of_tvm", "torch_of_tvm")]
    if situation == "taken":
        return [Bar("of_serial", 1.0)]
    if is_small:
        return [Bar("of_alone", 0.8)] if situation == "torch" else []
    partner = [Bar("partner_of_alone", 0.95)] if situation in {"torch", *OF_NUMPY} else []
    least = dict.fromkeys(OF_NUMPY, 0.8) | {"torch": 0.92, "callers": 0.85, "idle-30": 0.95, "idle-200": 0.95}
    return [Bar("of_alone", least[situation]), *partner] if situation in least else []


def main() -> None:
    """Parse arguments, measure each situation in a process of its own, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library", type=Path)
    parser.add_argument("--tiny", type=Path)
    parser.add_argument("--sizes", default="1,8,49,166", help="values of the first shape variable")
    parser.add_argument("--threads", default="auto", help="as of dietcode.load")
    parser.add_argument("--situations", default=",".join(s for s in SITUATIONS if s not in _ON_REQUEST))
    parser.add_argument("--secs", type=float, default=0.3, help="of each part of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prepare", action="store_true", help="tune, and measure nothing")
    parser.add_argument("--keep", action="store_true", help="what is measured and not asked for stays")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # what a child measures
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(_one(**json.loads(arguments.one))))
        return
    library = arguments.library or tuned("company")
    tiny = arguments.tiny or tuned("company-tiny")
    if arguments.prepare:
        return
    measured = {"secs": arguments.secs, "rounds": arguments.rounds}
    rows = []
    for situation in arguments.situations.split(","):
        if situation == CALLS:
            rows.append(in_a_child({"folder": str(tiny), "situation": CALLS, "size": 1}))
            print(told(rows[-1]), flush=True)
            continue
        for size in arguments.sizes.split(","):
            for threads in arguments.threads.split(","):
                request = {"situation": situation, "size": int(size), "threads": threads}
                rows.append(in_a_child({"folder": str(library)} | request | measured))
                print(told(rows[-1]), flush=True)
    if arguments.keep:
        rows = _with_kept(rows, library)
    of_library = {"library": library.name, "digest": _digest(library)}
    write(result_path("company"), of_library | measured | {"rows": rows})
    checked = [bar for row in rows if not row.get("disturbed") for bar in row["bars"]]
    print(f"{sum(bar['is_met'] for bar in checked)} of {len(checked)} bars are met")


def _with_kept(rows: list[Row], library: Path) -> list[Row]:
    """Add the rows of the last result that are of the same library and that `rows` lacks, in its order."""
    path = result_path("company")
    last = json.loads(path.read_text()) if path.is_file() else {}
    found = {_key(row): row for row in last.get("rows", []) if last.get("digest") == _digest(library)}
    return sorted((found | {_key(row): row for row in rows}).values(), key=_key)


def _key(row: Row) -> tuple[int, int, str]:
    return SITUATIONS.index(row["situation"]), row["size"], row.get("threads", "")


def _digest(library: Path) -> str:
    return sha256_file(library / CODE)


def _one(folder: str, situation: str, size: int, **options: Any) -> Row:
    if situation == CALLS:
        return tiny_calls(Path(folder), size)
    return measure(Path(folder), situation, size, **options)


def tuned(name: str) -> Path:
    """The library of a workload of this benchmark, tuned if it is not there."""
    folder, (columns, reduction, largest, secs) = _BUILT / name, _WORKLOADS[name]
    if folder.is_dir():
        return folder
    budget = {"trials": 64, "seconds": secs}
    spec = dense_spec(name, ("S", 1, largest), columns, reduction, budget=budget)
    path = _BUILT / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(spec))
    command = [sys.executable, "-m", "dietcode", "tune", str(path), "-o", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT)
    return folder


def in_a_child(request: Row) -> Row:
    """What is asked for, from a process that has loaded nothing else, and its bars."""
    command = [sys.executable, "-m", "benchmarks.company", "--one", json.dumps(request)]
    environment = os.environ | settings(request["situation"])

    def measure_once() -> Row:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=environment
        )
        found: Row = json.loads(done.stdout.splitlines()[-1])
        return found

    watched = undisturbed(measure_once, lambda row: float(row.get("spread", 1.0)), machine_of())
    found = watched.value
    wanted = {name: value for name, value in request.items() if name not in {"folder", "secs", "rounds"}}
    told_bars = [bar.told(found) for bar in bars(request["situation"], request["size"])]
    known = {key: facts()[key] for key in ("commit", "date")} | {"disturbed": watched.disturbed}
    return wanted | found | known | {"bars": told_bars}


def settings(situation: str) -> dict[str, str]:
    """Return the environment variables that a situation's process starts with."""
    if situation == "intel":
        return {"LD_PRELOAD": intel_openmp()}
    return {"OPENBLAS_THREAD_TIMEOUT": "14"} if situation == "numpy-asleep" else {}


def intel_openmp() -> str:
    """The path of Intel's OpenMP library."""
    try:
        files = importlib.metadata.files("intel-openmp") or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit("intel: intel-openmp is not installed; pip install it, or leave intel out of --situations")
    return next(str(Path(path.locate()).resolve()) for path in files if path.name == "libiomp5.so")


def told(row: Row) -> str:
    """One line for people: where, the rates, and each bar, with a cross where it is missed."""
    text = f"{row['situation']:12} {row['size']:4} {row.get('threads', ''):5}"
    if "gflops" in row:
        text += f" alone {row['alone']:4.0f}  here {row['gflops']:4.0f}"
    if "partner" in row:
        text += f"  partner {row['partner']:4.0f}  here {row['partner_gflops']:4.0f}"
    if "serial" in row:
        text += f"  serial {row['serial']:4.0f}"
    marked = [
        f"{bar['figure']} {bar['value']:.2f} {bar['bar']}{'' if bar['is_met'] else ' ✗'}"
        for bar in row["bars"]
    ]
    unbarred = "" if marked or "of_alone" not in row else f"of_alone {row['of_alone']:.2f}"
    text = f"{text}  | {', '.join(marked) or unbarred}"
    return text + (f"  disturbed: {row['disturbed']}" if row.get("disturbed") else "")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(available_cores()))
    main()
