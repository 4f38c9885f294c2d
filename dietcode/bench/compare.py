"""A library beside a vendor: predicted, measured and the vendor's GFLOP/s of each instance, and the error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dietcode.bench.operator import Binder, Operator
from dietcode.bench.roofline import Roofline
from dietcode.bench.vendor import vendor_paths
from dietcode.measure.disturbance import machine_of, undisturbed
from dietcode.measure.turns import (
    BATCH_SECS,
    COMPANY_SECS,
    FEWEST_ROUNDS,
    WARM_SECS,
    Timings,
    batch_numbers,
    take_turns,
    time_rounds,
)
from dietcode.runtime.library import Library
from dietcode.runtime.loading import load
from dietcode.runtime.tensors import aligned_empty, new_output, stored
from dietcode.search_space.forms import FORMS

# Makes further calls to time in the same turns, from the bytes of an instance's tensors.
Probes: TypeAlias = Callable[[int], Mapping[str, Callable[[], Any]]]

OWN = "dietcode"  # the library's path
_AGAIN = 0.4  # of the time for all instances
_CALLS = 6  # of each path: an estimate of what the reference, warming up and counting take


def bench(
    folder: Path,
    vendors: Sequence[str],
    num_instances: int | None = 16,
    rounds: int = 7,
    num_threads: int | None = None,
    probes: Probes | None = None,
    paths: Mapping[str, Binder] | None = None,
    until: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure a library beside the vendors and yield a record for each instance.

    Parameters
    ----------
    vendors : sequence of str
        ``numpy``, ``torch``. Beside PyTorch the library is called with torch tensors.
    num_instances : int, optional
        Spread over the instances of the report, see `spread`; None for all.
    rounds : int
        Interleaved rounds; the median is reported.
    probes : callable, optional
        Further calls that are timed in turns, see `Probes`.
    paths : mapping of str to Binder, optional
        Further paths of vendors.
    until : float, optional
        Approximate end by `time.monotonic`: instances share the time that is left, with fewer rounds, 3 at
        least; then some are skipped. They come in the order of `coarse_first`, disturbed ones last: those are
        measured again for at most `_AGAIN` of the time more.

    Yields
    ------
    dict
        The record of contract: shape_vars, category, padding_ratio, predicted_gflops, measured_gflops,
        vendor (the fastest path), vendor_gflops, max_rel_error; vendors, with every path; in_company,
        measured_gflops and vendor_gflops where the two take turns call by call, see `take_turns`, None
        without a vendor; spread, the largest median of repeats over their fastest; disturbed, why the
        rates must not become figures, None where they may; bytes, of all tensors once; and peak_gflops,
        read_gbytes_per_sec and roof_gflops of `dietcode.bench.roofline.Figures`, read beside it. With
        `probes` also probe_secs.
    """
    library = load(folder, num_threads=num_threads)
    own = Bench(library, vendors, num_threads, paths)
    rows = library.report["instances"]
    if num_instances is not None and num_instances < len(rows):
        rows = [rows[i] for i in spread(len(rows), num_instances)]
    if until is None:
        for row in rows:
            yield _record(own, row, rounds, probes)
        return
    begun, order, again = time.monotonic(), coarse_first(len(rows)), []
    for number, position in enumerate(order):
        row, left = rows[position], until - time.monotonic()
        if _expected_secs(row, 1 + len(own.paths)) > left:
            continue
        part = time.monotonic() + left / (len(order) - number)
        record = _record(own, row, rounds, probes, part)
        if record["disturbed"]:
            again.append((row, record))
        else:
            yield record
    until += _AGAIN * (until - begun)
    for number, (row, record) in enumerate(again):
        left = until - time.monotonic()
        if _expected_secs(row, 1 + len(own.paths)) < left:
            other = _record(own, row, rounds, probes, time.monotonic() + left / (len(again) - number))
            yield record if other["disturbed"] else other
        else:
            yield record


def _expected_secs(row: Mapping[str, Any], num_paths: int) -> float:
    """Return the least seconds of an instance, if the vendor is as fast as the library is predicted to be."""
    call_secs = float(row["flops"] / (row["predicted_gflops"] * 1e9))
    round_secs = max(BATCH_SECS + WARM_SECS, 2 * call_secs)
    company_secs = FEWEST_ROUNDS * max(COMPANY_SECS, 2 * call_secs) if num_paths > 1 else 0.0
    return num_paths * (FEWEST_ROUNDS * round_secs + _CALLS * call_secs) + company_secs


def coarse_first(total: int) -> list[int]:
    """Return 0…total-1, ends first, then what halves each gap, so that any first part is spread evenly."""
    gaps, order = [(0, total - 1)], sorted({0, total - 1} if total > 0 else set())
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return order


def spread(total: int, wanted: int) -> list[int]:
    """Return some of 0…total-1, ends included: half evenly spaced, the others on a logarithmic scale.

    A linear scale has few small shapes, and each of them behaves differently.
    """
    wanted = min(wanted, total)
    linear = np.linspace(0, total - 1, max(min(2, wanted), wanted - wanted // 2)).round().astype(int)
    picked = best = set(linear.tolist())
    for points in range(2, 4 * wanted):
        logarithmic = np.geomspace(1, total, points).round().astype(int) - 1
        if len(picked.union(logarithmic.tolist())) > wanted:
            break
        best = picked.union(logarithmic.tolist())
    return sorted(best)


class _Constants:
    """Constant inputs, drawn and packed once for each set of shapes."""

    def __init__(self, library: Library, operator: Operator) -> None:
        self.library, self.operator = library, operator
        self.arrays: dict[Any, np.ndarray[Any, Any]] = {}
        self.packed: dict[Any, Any] = {}

    def get(self, name: str, extents: Mapping[str, int], rng: np.random.Generator) -> tuple[Any, Any]:
        key = (name, *(int(n) for n in self.operator.problem.shape(name, extents)))
        if key not in self.arrays:
            self.arrays[key] = _aligned(self.operator.problem.draw(name, extents, rng))
            packs = name in self.library.manifest["packed"]
            self.packed[key] = self.library.pack(**{name: self.arrays[key]}) if packs else self.arrays[key]
        return self.arrays[key], self.packed[key]


@dataclass(frozen=True)
class Timed:
    """One instance of a library beside the vendors.

    Attributes
    ----------
    secs : Timings
        Median seconds of a call of each path, ``dietcode`` among them, and what disturbed them.
    best : str or None
        The fastest of the vendors' paths; None without any.
    in_turns : (float, float) or None
        Seconds of a call of the library and of that path where the two alternate.
    probe_secs : dict of str to float
    num_bytes : int
        Of all tensors once.
    error : float
        The largest, relative to the output's scale.
    """

    secs: Timings
    best: str | None
    in_turns: tuple[float, float] | None
    probe_secs: dict[str, float]
    num_bytes: int
    error: float


class Bench:
    """A library and the vendors' paths for its operator.

    Parameters
    ----------
    vendors : sequence of str
        ``numpy``, ``torch``. Beside PyTorch the library is called with torch tensors.
    num_threads : int, optional
        On both sides; by default as many as the library was tuned for.
    paths : mapping of str to Binder, optional
        Further paths.

    Raises
    ------
    RequestError
        A vendor is unknown, not installed, or has no kernel for this operator.
    """

    def __init__(
        self,
        library: Library,
        vendors: Sequence[str],
        num_threads: int | None = None,
        paths: Mapping[str, Binder] | None = None,
    ) -> None:
        self.library, self.operator = library, Operator.of(library.manifest)
        threads = num_threads or int(library.manifest["num_threads"])
        self.machine, self.roofline = machine_of(threads), Roofline(threads)
        self.paths = dict(paths or {})
        for vendor in vendors:
            self.paths |= vendor_paths(vendor, self.operator, threads)
        self._constants = _Constants(library, self.operator)

    def time(
        self,
        binding: Mapping[str, int],
        rounds: int,
        probes: Probes | None = None,
        until: float | None = None,
    ) -> Timed:
        """Measure one instance in interleaved rounds, and compare the result with the reference.

        What is disturbed is measured again where there are rounds enough to tell, and no `until`.

        Parameters
        ----------
        binding : mapping of str to int
            Values of the shape variables.
        rounds : int
        probes : callable, optional
            Further calls that are timed in turns.
        until : float, optional
            Approximate end by `time.monotonic`.
        """
        library, problem = self.library, self.operator.problem
        rng, extents = np.random.default_rng(list(binding.values())), self.operator.extents(binding)
        arrays: dict[str, Any] = {}
        arguments: dict[str, Any] = {}
        for name in self.operator.inputs:
            if name in self.operator.constants:
                arrays[name], arguments[name] = self._constants.get(name, extents, rng)
            else:
                arrays[name] = arguments[name] = _aligned(problem.draw(name, extents, rng))
        for keyword in library.manifest["binding"]["keywords"]:
            arguments[keyword] = binding[keyword]
        right = FORMS[problem.form].expect(problem, arrays, extents, math.inf)
        shapes = self.operator.shapes(binding)
        own = [name for name in problem.outputs if name not in problem.into]
        outputs = {name: new_output(shapes[name], problem.dtype(name), ()) for name in own}
        for output in outputs.values():
            output[...] = np.nan
        outs = outputs
        if any(name.startswith("torch") for name in self.paths):
            arguments, outs = _as_torch(arguments), _as_torch(outputs)
        tables = {name: table for name, (table, _) in problem.into.items()}
        outs = {name: outs[name] if name in outs else arguments[tables[name]] for name in problem.outputs}
        outputs = {
            name: outputs[name] if name in outputs else arrays[tables[name]] for name in problem.outputs
        }
        out = tuple(outs.values()) if len(outs) > 1 else next(iter(outs.values()))
        library(**arguments, out=out)
        error = right.error_of_all([stored(output, problem.dtype(name)) for name, output in outputs.items()])
        calls: dict[str, Callable[[], Any]] = {OWN: lambda: library(**arguments, out=out)}
        calls |= {name: bind(arrays) for name, bind in self.paths.items()}
        num_bytes = sum(array.nbytes for array in (*arrays.values(), *outputs.values()))
        extra = {} if probes is None else dict(probes(num_bytes))
        timed = calls | extra
        numbers = batch_numbers(timed)

        def measure() -> tuple[Timings, str | None, tuple[float, float] | None]:
            secs = time_rounds(timed, numbers, rounds, until)
            best = min(self.paths, key=lambda name: secs[name], default=None)
            pair = None if best is None else take_turns(calls[OWN], calls[best], rounds, until)
            return secs, best, pair

        repeats = rounds >= FEWEST_ROUNDS and until is None
        watched = undisturbed(measure, lambda found: found[0].spread, self.machine, repeats)
        secs, best, pair = watched.value
        secs.disturbed = watched.disturbed
        probe_secs = {name: secs.pop(name) for name in extra}
        return Timed(secs, best, pair, probe_secs, num_bytes, error)


def _record(
    bench_of: Bench,
    row: Mapping[str, Any],
    rounds: int,
    probes: Probes | None,
    until: float | None = None,
) -> dict[str, Any]:
    timed = bench_of.time(row["shape_vars"], rounds, probes, until)
    flops = float(row["flops"])
    rates = {name: flops / value / 1e9 for name, value in timed.secs.items()}
    roof = bench_of.roofline.read(flops, timed.num_bytes, max(rates.values()))
    company = None
    if timed.in_turns is not None:
        pair = (flops / secs / 1e9 for secs in timed.in_turns)
        company = dict(zip(("measured_gflops", "vendor_gflops"), pair, strict=True))
    found = {
        "shape_vars": row["shape_vars"],
        "category": row["category"],
        "micro_kernel": row["micro_kernel"],
        "padding_ratio": row["padding_ratio"],
        "predicted_gflops": row["predicted_gflops"],
        "measured_gflops": rates[OWN],
        "measured_gb_per_sec": timed.num_bytes / timed.secs[OWN] / 1e9,
        "vendor": timed.best,
        "vendor_gflops": rates[timed.best] if timed.best else None,
        "vendors": {name: rate for name, rate in rates.items() if name != OWN},
        "in_company": company,
        "max_rel_error": timed.error,
        "spread": timed.secs.spread,
        "disturbed": timed.secs.disturbed,
        "bytes": timed.num_bytes,
        **asdict(roof),
    }
    return found if probes is None else found | {"probe_secs": timed.probe_secs}


def _as_torch(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays as torch tensors of the same memory, as callers have them; others unchanged."""
    import torch

    known = (np.float32, np.int32)
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) and value.dtype in known else value
        for name, value in tensors.items()
    }


def error_of(output: Any, expected: Any) -> float:
    """Return the largest error, relative to the output's scale."""
    return float(np.abs(output - expected).max() / (np.abs(expected).max() or 1.0))


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy at a multiple of 64 bytes, as torch aligns its own; all paths use the same memory."""
    copy = aligned_empty(array.shape, dtype=array.dtype.name)
    copy[...] = array
    return copy
