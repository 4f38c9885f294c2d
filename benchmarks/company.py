"""How fast a library is in a program that computes with others as well, and how fast these stay.

    dietcode tune examples/dense-odd.yaml -o build/benchmarks/dense-odd
    python -m benchmarks.company build/benchmarks/dense-odd [--sizes 1,8,49,166] [--threads auto,own]
        [--situations torch,numpy,…] [--secs 1] [--rounds 3]

Each situation has a process of its own. In it every round measures the library alone, then in company, then
the partner alone, and the medians of the rounds count. Rates are means over all calls of a round: what a pool
of threads loses, it loses in some of them. What is measured while other processes compute is measured again.
Writes ``benchmarks/results/company.json``. Situations:

- ``torch``, ``numpy``: calls take turns with the partner's of the same operator, PyTorch's also of another;
- ``compiled``: the same with a module that ``torch.compile`` made, whose weights are frozen;
- ``intel``: as ``torch``, where PyTorch's threads are Intel OpenMP's, which has to be there (``pip install
  intel-openmp``): its library is loaded ahead of PyTorch's own;
- ``callers``: four Python threads call, and their sum counts; in ``mixed`` two of them with NumPy's arrays;
- ``taken``: another process computes all the time; beside it ``serial``, one thread of the library;
- ``idle-30``, ``idle-200``: bursts of 4 ms after so many milliseconds without a call, from the second call of
  each on, in a process that has used PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import write
from dietcode.bench.operator import Operator
from dietcode.bench.vendor import vendor_paths
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.library import Library
from dietcode.runtime.loading import load
from dietcode.runtime.tensors import aligned_empty

ROOT = Path(__file__).resolve().parent.parent
SITUATIONS = ("torch", "compiled", "intel", "numpy", "callers", "mixed", "taken", "idle-30", "idle-200")
_BURST_SECS = 4e-3
_MAX_OTHERS, _MAX_TRIES = 0.05, 10  # of a core, by other processes, beyond which a row is measured again
Row = dict[str, Any]
Call = Callable[[], Any]


def main() -> None:
    """Parse arguments, measure each situation in a process of its own, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="1,8,49,166", help="values of the first shape variable")
    parser.add_argument("--threads", default="auto,own", help="as of dietcode.load")
    parser.add_argument("--situations", default=",".join(SITUATIONS))
    parser.add_argument("--secs", type=float, default=1.0, help="of each part of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # what a child measures
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.folder, **json.loads(arguments.one))))
        return
    rows = []
    for situation in arguments.situations.split(","):
        for size in arguments.sizes.split(","):
            for threads in arguments.threads.split(","):
                request = {
                    "situation": situation,
                    "size": int(size),
                    "threads": threads,
                    "secs": arguments.secs,
                    "rounds": arguments.rounds,
                }
                rows.append(in_a_child(arguments.folder, request))
                print(told(rows[-1]), flush=True)
    write(ROOT / "benchmarks" / "results" / "company.json", {"library": arguments.folder.name, "rows": rows})


def in_a_child(folder: Path, request: Row) -> Row:
    """What `measure` returns, from a process that has loaded nothing else."""
    command = [sys.executable, "-m", "benchmarks.company", str(folder), "--one", json.dumps(request)]
    environment = os.environ | ({"LD_PRELOAD": intel_openmp()} if request["situation"] == "intel" else {})
    for _ in range(_MAX_TRIES):
        with counted_others() as others:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=environment
            )
        if others[0] <= _MAX_OTHERS:
            break
        print(f"again: other processes had {others[0]:.2f} of a core meanwhile", file=sys.stderr)
    return request | json.loads(done.stdout.splitlines()[-1]) | {"others": round(others[0], 3)}


@contextmanager
def counted_others() -> Iterator[list[float]]:
    """Give a list that holds at the end how much of a core processes had that are not this one's children."""

    def busy() -> float:
        fields = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:]
        idle = int(fields[3]) + int(fields[4])
        return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")

    def own() -> float:
        return sum(
            used.ru_utime + used.ru_stime
            for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )

    before, started, found = busy() - own(), time.monotonic(), [0.0]
    yield found
    found[0] = (busy() - own() - before) / (time.monotonic() - started)


def intel_openmp() -> str:
    """The path of Intel's OpenMP library."""
    try:
        files = importlib.metadata.files("intel-openmp") or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit("intel: intel-openmp is not installed; pip install it, or leave intel out of --situations")
    return next(str(Path(path.locate()).resolve()) for path in files if path.name == "libiomp5.so")


def told(row: Row) -> str:
    """One line for people."""
    text = f"{row['situation']:9} {row['size']:5} {row['threads']:5}"
    text += f" alone {row['alone']:6.0f}  in company {row['gflops']:6.0f} ({row['of_alone']:.2f})"
    if "partner" in row:
        text += (
            f"  partner {row['partner_gflops']:6.0f} of {row['partner']:6.0f} ({row['partner_of_alone']:.2f})"
        )
    return text + (f"  serial {row['serial']:6.0f}" if "serial" in row else "")


def measure(folder: Path, situation: str, size: int, threads: str, secs: float, rounds: int) -> Row:
    """GFLOP/s of the library alone and in company, and of the partner, medians of `rounds`."""
    library = load(folder, threads=threads)
    case = Case(library, size)
    case.check()
    round_of = {
        "torch": beside_vendor,
        "compiled": beside_vendor,
        "intel": beside_vendor,
        "numpy": beside_vendor,
        "callers": four_callers,
        "mixed": four_callers,
        "taken": one_core_taken,
    }.get(situation, bursts)
    found = [round_of(case, situation, secs) for _ in range(rounds)]
    row = {name: statistics.median(each[name] for each in found) for name in found[0]}
    row["of_alone"] = statistics.median(each["gflops"] / each["alone"] for each in found)
    if "partner" in row:
        row["partner_of_alone"] = statistics.median(
            each["partner_gflops"] / each["partner"] for each in found
        )
    return row


class Case:
    """A library's call at one value of its first shape variable; other variables have their smallest.

    Attributes
    ----------
    gflop : float
        Of one call.
    """

    def __init__(self, library: Library, size: int) -> None:
        self.library, self.operator = library, Operator.of(library.manifest)
        facts = library.manifest["variables"]
        first, *others = library.manifest["variable_order"]
        self.binding = {first: size} | {name: int(facts[name]["min"]) for name in others}
        rows = library.report["instances"]
        extents = self.operator.shapes(self.binding)
        flops_of = {tuple(row["shape_vars"].values()): row["flops"] for row in rows}
        self.gflop = float(flops_of[tuple(self.binding.values())]) / 1e9
        rng = np.random.default_rng(0)
        self.arrays = {}
        for name in self.operator.inputs:
            self.arrays[name] = aligned_empty(extents[name])
            self.arrays[name][...] = rng.standard_normal(extents[name], dtype=np.float32)
        self.shape = extents[self.operator.problem.output]
        self.packed = {name: library.pack(**{name: self.arrays[name]}) for name in library.manifest["packed"]}

    def check(self) -> None:
        """Compare one call of each kind with NumPy."""
        right = vendor_paths("numpy", self.operator, available_cores())
        expected = np.asarray(next(iter(right.values()))(self.arrays)())
        for with_torch in (False, True):
            result = np.asarray(self.call(with_torch)()).reshape(expected.shape)
            assert np.abs(result - expected).max() <= 1e-3 * np.abs(expected).max()

    def call(self, with_torch: bool) -> Call:
        """A call with tensors of its own, of PyTorch's or of NumPy's."""
        given: Row = {name: self.packed.get(name, array.copy()) for name, array in self.arrays.items()}
        out: Any = aligned_empty(self.shape)
        if with_torch:
            import torch

            given = {n: torch.from_numpy(t) if isinstance(t, np.ndarray) else t for n, t in given.items()}
            out = torch.from_numpy(out)
        given |= {name: self.binding[name] for name in self.library.manifest["binding"]["keywords"]}
        return lambda: self.library(**given, out=out)

    def partner(self, situation: str) -> Call:
        """The same operator by a vendor: PyTorch eager or compiled, or NumPy."""
        paths = vendor_paths("numpy" if situation == "numpy" else "torch", self.operator, available_cores())
        is_compiled = situation == "compiled"
        return next(path for name, path in paths.items() if ("compile" in name) == is_compiled)(self.arrays)


def in_turns(calls: Sequence[Call], secs: float) -> list[float]:
    """Mean seconds of each call, where they are made one after the other for `secs`, after a warm-up."""
    spent, number = [0.0] * len(calls), 0
    for length in (secs / 4, secs):
        spent, number = [0.0] * len(calls), 0
        until = time.perf_counter() + length
        while time.perf_counter() < until:
            for index, call in enumerate(calls):
                started = time.perf_counter()
                call()
                spent[index] += time.perf_counter() - started
            number += 1
    return [each / number for each in spent]


def beside_vendor(case: Case, situation: str, secs: float) -> Row:
    """Calls alternate with the vendor's."""
    call, partner = case.call(situation != "numpy"), case.partner(situation)
    turns: list[Call] = [call, partner]
    if situation != "numpy":
        import torch

        small = torch.randn(64, 64)
        turns += [call, lambda: torch.relu(small + 1)]
    (alone,) = in_turns([call], secs)
    found = in_turns(turns, secs)
    (partner_alone,) = in_turns([partner], secs)
    own = statistics.mean(found[::2])
    return {
        "alone": case.gflop / alone,
        "gflops": case.gflop / own,
        "partner": case.gflop / partner_alone,
        "partner_gflops": case.gflop / found[1],
    }


def four_callers(case: Case, situation: str, secs: float) -> Row:
    """Four threads call for a while."""
    calls = [case.call(with_torch=number % 2 == 0 or situation == "callers") for number in range(4)]
    (alone,) = in_turns(calls[:1], secs)
    made, until = [0] * 4, time.perf_counter() + secs

    def work(number: int) -> None:
        while time.perf_counter() < until:
            calls[number]()
            made[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"alone": case.gflop / alone, "gflops": case.gflop * sum(made) / secs}


def one_core_taken(case: Case, situation: str, secs: float) -> Row:
    """Beside a process that computes all the time."""
    call = case.call(with_torch=True)
    one_thread = load(case.library.folder, num_threads=1)
    serial = Case(one_thread, next(iter(case.binding.values()))).call(with_torch=True)
    (alone,) = in_turns([call], secs)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        (found,) = in_turns([call], secs)
        (found_serial,) = in_turns([serial], secs)
    finally:
        other.kill()
        other.wait()
    return {"alone": case.gflop / alone, "gflops": case.gflop / found, "serial": case.gflop / found_serial}


def bursts(case: Case, situation: str, secs: float) -> Row:
    """Bursts between pauses."""
    import torch

    x = torch.randn(256, 256)
    for _ in range(20):
        torch.mm(x, x)
    call, pause = case.call(with_torch=True), int(situation.rpartition("-")[2]) * 1e-3
    (alone,) = in_turns([call], secs)
    spent, number = 0.0, 0
    for _ in range(max(3, int(secs / (pause + _BURST_SECS)))):
        time.sleep(pause)
        until = time.perf_counter() + _BURST_SECS
        call()
        while (started := time.perf_counter()) < until:
            call()
            spent += time.perf_counter() - started
            number += 1
    return {"alone": case.gflop / alone, "gflops": case.gflop * number / spent if number else 0.0}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(available_cores()))
    main()
