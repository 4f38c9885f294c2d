"""What `benchmarks.company` measures: calls of a library alone, and in the company of other work."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.bench.operator import Operator
from dietcode.bench.vendor import vendor_paths
from dietcode.measure.disturbance import spread_of_readings
from dietcode.measure.tvm_threads import set_num_threads
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.library import Library
from dietcode.runtime.loading import load
from dietcode.runtime.manifest import CODE
from dietcode.runtime.native import load_code
from dietcode.runtime.tensors import aligned_empty

_SLICES = 4
_SETTLE_SECS, _SETTLE_TVM_SECS = 0.25, 0.4  # until threads of others sleep; OpenBLAS spins for 0.1 s
_BURST_SECS = 4e-3
OF_NUMPY = {"numpy", "numpy-asleep"}  # situations whose partner is NumPy
Row = dict[str, Any]
Call = Callable[[], Any]


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

    def elsewhere(self) -> Case:
        """The same on tensors of its own."""
        return Case(self.library, next(iter(self.binding.values())))

    def check(self) -> None:
        """Compare one call of each kind with NumPy."""
        right = vendor_paths("numpy", self.operator, available_cores())
        expected = np.asarray(next(iter(right.values()))(self.arrays)())
        for with_torch in (False, True):
            result = np.asarray(self.call(with_torch)()).reshape(expected.shape)
            assert np.abs(result - expected).max() <= 1e-3 * np.abs(expected).max()

    def arguments(self, with_torch: bool) -> Row:
        """Tensors of a call, of PyTorch or of NumPy, and the values that no shape tells."""
        given: Row = {name: self.packed.get(name, array.copy()) for name, array in self.arrays.items()}
        if with_torch:
            import torch

            given = {n: torch.from_numpy(t) if isinstance(t, np.ndarray) else t for n, t in given.items()}
        return given | {name: self.binding[name] for name in self.library.manifest["binding"]["keywords"]}

    def output(self, with_torch: bool) -> Any:
        """Memory for a result, of PyTorch or of NumPy."""
        out = aligned_empty(self.shape)
        if not with_torch:
            return out
        import torch

        return torch.from_numpy(out)

    def call(self, with_torch: bool) -> Call:
        """A call with tensors of its own, of PyTorch's or of NumPy's."""
        given, out = self.arguments(with_torch), self.output(with_torch)
        return lambda: self.library(**given, out=out)

    def call_on_tvm(self) -> Call:
        """The same code on the threads of TVM's runtime, which a second copy of it is bound to."""
        run, given = _run_on_tvm(self.library.folder), self.arguments(False)
        names, variables = self.library.argument_names
        tensors = [getattr(given[name], "native", given[name]) for name in names]
        values = [self.binding[name] for name in variables]
        out = self.output(False)
        return lambda: run(*tensors, out, *values)

    def partner(self, situation: str) -> Call:
        """The same operator by a vendor: PyTorch eager or compiled, or NumPy."""
        paths = vendor_paths("numpy" if situation in OF_NUMPY else "torch", self.operator, available_cores())
        is_compiled = situation == "compiled"
        bind = next(path for name, path in paths.items() if ("compile" in name) == is_compiled)
        return bind({name: array.copy() for name, array in self.arrays.items()})


def _run_on_tvm(folder: Path) -> Any:
    """The function of a copy of a library's code: a library has pointers to one launcher."""
    set_num_threads(available_cores())
    package = importlib.util.find_spec("tvm")
    assert package is not None and package.origin is not None
    ctypes.CDLL(str(Path(package.origin).parent / "lib" / "libtvm_runtime.so"), mode=ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory() as other:
        return load_code(Path(shutil.copy(folder / CODE, other)))["run"]


def measure(folder: Path, situation: str, size: int, threads: str, secs: float, rounds: int) -> Row:
    """GFLOP/s of the library alone and in company, and of the partner: medians of `rounds`; and their spread.

    Parameters
    ----------
    folder : path
        Of the library.
    situation : str
        A key of `ROUNDS`.
    size : int
        Value of the first shape variable.
    threads : str
        As of `dietcode.load`.
    secs : float
        Of each part of a round.
    """
    case = Case(load(folder, threads=threads), size)
    case.check()
    found = [ROUNDS[situation](case, situation, secs) for _ in range(rounds)]
    spread = spread_of_readings(
        {rate: [1.0 / max(each[rate], 1e-9) for each in found] for rate in ("alone", "gflops")}
    )
    return {name: statistics.median(each[name] for each in found) for name in found[0]} | {"spread": spread}


def in_turns(calls: Sequence[Call], secs: float) -> tuple[list[float], int]:
    """Seconds of each call in all, made one after the other for `secs` after a warm-up, and how many."""
    spent, number = [0.0] * len(calls), 0
    for length in (secs / 4, secs):
        spent, number = [0.0] * len(calls), 0
        until = time.perf_counter() + length
        while not number or time.perf_counter() < until:
            for index, call in enumerate(calls):
                started = time.perf_counter()
                call()
                spent[index] += time.perf_counter() - started
            number += 1
    return spent, number


def in_slices(
    parts: Mapping[str, Sequence[Call]], secs: float, settle: float = _SETTLE_SECS
) -> dict[str, list[float]]:
    """Mean seconds of each call of each part; the parts take turns, so that all see the same machine."""
    spent, number = {name: [0.0] * len(calls) for name, calls in parts.items()}, dict.fromkeys(parts, 0)
    for _ in range(_SLICES):
        for name, calls in parts.items():
            time.sleep(settle)
            found, count = in_turns(calls, secs / _SLICES)
            spent[name] = [before + now for before, now in zip(spent[name], found, strict=True)]
            number[name] += count
    return {name: [each / number[name] for each in spent[name]] for name in parts}


def beside_vendor(case: Case, situation: str, secs: float) -> Row:
    """Calls alternate with the vendor's."""
    with_torch = situation not in OF_NUMPY
    call, partner = case.call(with_torch), case.partner(situation)
    again, other = case.elsewhere().call(with_torch), case.partner(situation)
    host, company, control = [partner], [call, partner], [other, partner]
    if with_torch:
        import torch

        small = torch.randn(64, 64)

        def few() -> Any:
            return torch.relu(small + 1)

        host, company, control = [partner, few], [call, partner, call, few], [other, partner, other, few]
    own_parts = {"alone": [call], "own control": [again, call]}
    vendors = {"host": host, "control": control}
    if with_torch:
        read = _reading(case)
        vendors["reading"] = [read, partner, read, few]
    found = in_slices({**own_parts, "company": company, **vendors}, secs)
    (alone,), together, (partner_alone, *_) = found["alone"], found["company"], found["host"]
    own = statistics.mean(together[::2])
    row = {
        "alone": case.gflop / alone,
        "gflops": case.gflop / own,
        "of_alone": alone / own,
        "control": alone / found["own control"][1],
        "partner": case.gflop / partner_alone,
        "partner_gflops": case.gflop / together[1],
        "partner_of_alone": partner_alone / together[1],
        "partner_control": partner_alone / found["control"][1],
    }
    if "reading" in found:
        row["partner_reading"] = partner_alone / found["reading"][1]
    return row


def _reading(case: Case) -> Call:
    """PyTorch's sum of as many numbers as the library's call reads: what caches take, and nothing else."""
    import torch

    numbers = torch.randn(sum(array.size for array in case.arrays.values()))
    return numbers.sum


def alone(case: Case, situation: str, secs: float) -> Row:
    """Calls of nobody else, beside the same code on TVM's threads."""
    parts = {"own": [case.call(False)], "torch": [case.call(True)], "tvm": [case.call_on_tvm()]}
    found = in_slices(parts, secs, _SETTLE_TVM_SECS)
    (own,), (torch,), (tvm,) = found["own"], found["torch"], found["tvm"]
    return {
        "alone": case.gflop / tvm,
        "gflops": case.gflop / own,
        "gflops_torch": case.gflop / torch,
        "of_tvm": tvm / own,
        "torch_of_tvm": tvm / torch,
    }


def four_callers(case: Case, situation: str, secs: float) -> Row:
    """Four threads call for a while."""
    calls = [case.call(with_torch=number % 2 == 0 or situation == "callers") for number in range(4)]
    made, elapsed, spent, number = 0, 0.0, 0.0, 0
    for _ in range(_SLICES):
        (found,), count = in_turns(calls[:1], secs / _SLICES)
        spent, number = spent + found, number + count
        number_made, took = _called_by_threads(calls, secs / _SLICES)
        made, elapsed = made + number_made, elapsed + took
    return {
        "alone": case.gflop * number / spent,
        "gflops": case.gflop * made / elapsed,
        "of_alone": made / elapsed * spent / number,
    }


def _called_by_threads(calls: Sequence[Call], secs: float) -> tuple[int, float]:
    """How many calls threads make that begin together and go on for `secs`, and the seconds until all end."""
    made, began = [0] * len(calls), [0.0]

    def begin() -> None:
        began[0] = time.perf_counter()

    together = threading.Barrier(len(calls), action=begin)

    def work(number: int) -> None:
        together.wait()
        while not made[number] or time.perf_counter() < began[0] + secs:
            calls[number]()
            made[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(made), time.perf_counter() - began[0]


def one_core_taken(case: Case, situation: str, secs: float) -> Row:
    """Beside a process that computes all the time."""
    call = case.call(with_torch=True)
    serial = _serial(case)
    (spent,), number = in_turns([call], secs)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        found = in_slices({"several": [call], "serial": [serial]}, secs)
    finally:
        other.kill()
        other.wait()
    return {
        "alone": case.gflop * number / spent,
        "gflops": case.gflop / found["several"][0],
        "serial": case.gflop / found["serial"][0],
        "of_serial": found["serial"][0] / found["several"][0],
    }


def bursts(case: Case, situation: str, secs: float) -> Row:
    """Bursts between pauses, from the second call of each on, in a process that has used PyTorch."""
    import torch

    x = torch.randn(256, 256)
    for _ in range(20):
        torch.mm(x, x)
    pause = int(situation.rpartition("-")[2]) * 1e-3
    calls = [case.call(with_torch=True), _serial(case)]
    steady, burst = ([0.0] * len(calls) for _ in range(2))
    for _ in range(_SLICES):
        for which, call in enumerate(calls):
            (found,), count = in_turns([call], secs / _SLICES)
            steady[which] += found / count / _SLICES
            burst[which] += _after_pauses(call, pause, secs / _SLICES) / _SLICES
    return {
        "alone": case.gflop / steady[0],
        "gflops": case.gflop / burst[0],
        "of_alone": steady[0] / burst[0],
        "control": steady[1] / burst[1],
    }


def _after_pauses(call: Call, pause: float, secs: float) -> float:
    """Mean seconds of a call in bursts, each of which begins after a pause and a call that does not count."""
    spent, number = 0.0, 0
    for _ in range(max(2, int(secs / (pause + _BURST_SECS)))):
        time.sleep(pause)
        until = time.perf_counter() + _BURST_SECS
        call()
        while True:
            started = time.perf_counter()
            call()
            ended = time.perf_counter()
            spent, number = spent + ended - started, number + 1
            if ended >= until:
                break
    return spent / number


def _serial(case: Case) -> Call:
    """The same call on one thread, by a library of its own."""
    library = load(case.library.folder, num_threads=1)
    return Case(library, next(iter(case.binding.values()))).call(with_torch=True)


ROUNDS: dict[str, Callable[[Case, str, float], Row]] = {
    "alone": alone,
    "torch": beside_vendor,
    **dict.fromkeys(sorted(OF_NUMPY), beside_vendor),
    "callers": four_callers,
    "mixed": four_callers,
    "taken": one_core_taken,
    "idle-30": bursts,
    "idle-200": bursts,
    "compiled": beside_vendor,
    "intel": beside_vendor,
}
