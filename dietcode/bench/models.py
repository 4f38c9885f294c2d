"""A whole model: where the time of a call goes, and the vendors' kernels for each of its parts."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dietcode.bench.compare import OWN, Bench
from dietcode.bench.vendor import check_vendor
from dietcode.errors import RequestError
from dietcode.graph.tensor_type import TensorType
from dietcode.measure.disturbance import machine_of, spread_of_readings, undisturbed
from dietcode.measure.turns import FEWEST_ROUNDS
from dietcode.runtime.library import Library
from dietcode.runtime.loading import LoadOptions, load
from dietcode.runtime.models.executable import Executable, HostStep, KernelStep, Step
from dietcode.runtime.models.loading import library_folder, load_model
from dietcode.runtime.models.model import Model

_WARM_CALLS = 3
_LEAST_SECS = 0.05  # of the calls of one round
T = TypeVar("T")


@dataclass
class PartCalls:
    """What one library does in a call.

    Attributes
    ----------
    calls : dict
        How often it is called with some values of its shape variables.
    numbers : list of int
        Of its steps.
    """

    calls: dict[tuple[tuple[str, int], ...], int] = field(default_factory=lambda: defaultdict(int))
    numbers: list[int] = field(default_factory=list)


class PartBenches:
    """A bundle's libraries, each loaded once, with those vendors that have a kernel for it.

    Parameters
    ----------
    folder : Path
    vendors : sequence of str
    num_threads : int or None

    Raises
    ------
    RequestError
        A vendor is unknown.
    """

    def __init__(self, folder: Path, vendors: Sequence[str], num_threads: int | None) -> None:
        for vendor in vendors:
            check_vendor(vendor)
        self._folder, self._vendors, self._num_threads = folder, vendors, num_threads
        self._found: dict[str, Bench] = {}

    def __getitem__(self, digest: str) -> Bench:
        """Return the bench of a library."""
        if digest not in self._found:
            library = load(library_folder(self._folder, digest), num_threads=self._num_threads)
            usable = [vendor for vendor in self._vendors if self._has_kernel(library, vendor)]
            self._found[digest] = Bench(library, usable, self._num_threads)
        return self._found[digest]

    def _has_kernel(self, library: Library, vendor: str) -> bool:
        try:
            Bench(library, [vendor], self._num_threads)
        except RequestError:
            return False
        return True


def bench_model(
    folder: Path,
    vendors: Sequence[str],
    sizes: Sequence[Mapping[str, int]] = (),
    rounds: int = 7,
    num_threads: int | None = None,
    weights: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure a model's call, each of its parts, and the vendors' kernels for these; a record for each size.

    Parameters
    ----------
    vendors : sequence of str
        ``numpy``, ``torch``; a part that a vendor has no kernel for is measured alone.
    sizes : sequence of mapping of str to int
        Values of the model's dimensions; a dimension that is left out has the geometric mean of its range. By
        default three sizes: all smallest, all of these means, all largest.
    rounds : int
        The median is reported.
    weights : Path, optional
        A file of weights; by default the bundle's own.

    Yields
    ------
    dict
        ``dimensions``; ``secs`` of a call; ``parts``, each with ``digest``, ``kind``, ``operator``, ``calls``
        and ``categories`` in this call, ``secs`` and ``share`` of it, and ``kernel_secs`` and ``vendor_secs``
        of these calls where the library and the fastest ``vendor`` are timed in turns; ``host``, the
        ``secs`` of what NumPy computes, by operator, and of branches and loops with all that is in them.
        ``disturbed``, of the call and of each part, says why its seconds must not become figures, None where
        they may.

    Raises
    ------
    RequestError
        A dimension or a vendor is unknown, or a size is outside of the ranges.
    """
    benches = PartBenches(folder, vendors, num_threads)
    model = load_model(folder, LoadOptions(weights, num_threads))
    parts = {part["digest"]: part for part in model.report["parts"]}
    for size in _sizes(model.executable, sizes):
        inputs = [_drawn(type_, size) for type_ in model.executable.inputs.values()]
        calls = partial(model.flat_call, inputs), partial(model.flat_step_secs, inputs)
        secs, steps, disturbed = timed_call(*calls, rounds, num_threads)
        found, host = _by_part(model, size, steps)
        rows = []
        for digest, part in found.items():
            own = sum(steps[number][1] for number in part.numbers)
            row = {name: parts[digest][name] for name in ("digest", "kind", "operator")}
            facts = {"calls": sum(part.calls.values()), "secs": own, "share": own / secs}
            rows.append(row | facts | beside(benches[digest], part, rounds))
        rows.sort(key=lambda row: -float(row["secs"]))
        yield {"dimensions": dict(size), "secs": secs, "parts": rows, "host": host, "disturbed": disturbed}


def _sizes(executable: Executable, given: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    ranges = {name: one for name, one in executable.ranges.items() if name not in executable.sizes}
    means = {name: round((max(1, low) * max(1, high)) ** 0.5) for name, (low, high) in ranges.items()}
    for size in given:
        for name, value in size.items():
            if name not in ranges:
                allowed = ", ".join(ranges) or "none: the model has one shape"
                raise RequestError(f"--at: {name}; allowed: {allowed}")
            low, high = ranges[name]
            if not low <= value <= high:
                raise RequestError(f"--at: {name}={value}; allowed: {low}…{high}")
    if given:
        return [means | dict(size) for size in given]
    smallest = {name: low for name, (low, _) in ranges.items()}
    largest = {name: high for name, (_, high) in ranges.items()}
    found: list[dict[str, int]] = []
    for size in (smallest, means, largest):
        if size not in found:
            found.append(size)
    return found


def _drawn(type_: TensorType, size: Mapping[str, int]) -> Any:
    """Return an input: normal numbers, truth values that hold, positions that every table has."""
    shape = [extent.evaluate(size) for extent in type_.shape]
    if type_.dtype == "bool":
        return np.ones(shape, bool)
    if not type_.dtype.startswith("float"):
        return np.zeros(shape, type_.dtype)
    return np.random.default_rng(0).standard_normal(shape).astype(type_.dtype)


def timed_call(
    call: Callable[[], Any],
    profile: Callable[[], Sequence[tuple[T, float]]],
    rounds: int,
    num_threads: int | None = None,
) -> tuple[float, list[tuple[T, float]], str | None]:
    """Return the median seconds of a call, of each of its steps, and what disturbed them, None without.

    Parameters
    ----------
    call : callable
    profile : callable
        Gives the seconds of each step of one call.
    rounds : int
        Where they are enough to tell, what is disturbed is measured again.
    num_threads : int, optional
        Of a call; by default on all cores.
    """
    for _ in range(_WARM_CALLS):
        call()

    def measure() -> tuple[list[float], list[Sequence[tuple[T, float]]]]:
        readings, steps = [], []
        for _ in range(rounds):
            number, started = 0, time.perf_counter()
            while number == 0 or time.perf_counter() - started < _LEAST_SECS:
                call()
                number += 1
            readings.append((time.perf_counter() - started) / number)
            steps += [profile() for _ in range(_WARM_CALLS)]
        return readings, steps

    watched = undisturbed(
        measure,
        lambda found: spread_of_readings({"call": found[0]}),
        machine_of(num_threads),
        repeats=rounds >= FEWEST_ROUNDS,
    )
    readings, steps = watched.value
    medians = [statistics.median(one) for one in zip(*([s for _, s in run] for run in steps), strict=True)]
    by_step = [(step, median) for (step, _), median in zip(steps[0], medians, strict=True)]
    return statistics.median(readings), by_step, watched.disturbed


def _by_part(
    model: Model, size: Mapping[str, int], steps: Sequence[tuple[Step, float]]
) -> tuple[dict[str, PartCalls], list[dict[str, Any]]]:
    """Return the libraries that are called, and what else takes time."""
    parts: dict[str, PartCalls] = defaultdict(PartCalls)
    host: dict[str, list[float]] = defaultdict(list)
    known = set(size)
    for number, (step, secs) in enumerate(steps):
        if not isinstance(step, KernelStep):
            name = step.operator if isinstance(step, HostStep) else type(step).__name__.removesuffix("Step")
            host[name.lower()].append(secs)
            continue
        parts[step.digest].numbers.append(number)
        extents = step.variables
        if all(extent.variables <= known for extent in extents.values()):  # not sizes that a step tells
            times = 1 if step.repeat is None else step.repeat.count.evaluate(size)
            values = tuple((name, extent.evaluate(size)) for name, extent in extents.items())
            parts[step.digest].calls[values] += times
    rows = [{"operator": name, "calls": len(secs), "secs": sum(secs)} for name, secs in host.items()]
    return dict(parts), sorted(rows, key=lambda row: -float(str(row["secs"])))


def beside(bench: Bench, part: PartCalls, rounds: int) -> dict[str, Any]:
    """Return what a part's calls take in turns with the fastest vendor, the categories, and `disturbed`."""
    names = bench.library.argument_names[1]
    categories = set()
    kernel, vendor, disturbed = 0.0, 0.0, None
    fastest: dict[str, int] = defaultdict(int)
    for values, calls in part.calls.items():
        binding = {name: value for name, value in values if name in names}
        categories.add(bench.library.select(**binding))
        timed = bench.time(binding, rounds)
        disturbed = disturbed or timed.secs.disturbed
        kernel += calls * timed.secs[OWN]
        if timed.best is not None:
            vendor += calls * timed.secs[timed.best]
            fastest[timed.best] += calls
    return {
        "categories": sorted(categories),
        "kernel_secs": kernel or None,
        "vendor": max(fastest, key=lambda name: fastest[name], default=None),
        "vendor_secs": vendor or None,
        "disturbed": disturbed,
    }
