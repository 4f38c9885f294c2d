"""A recorded program: where the time of a call goes, and what of it ran eagerly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dietcode.bench.models import PartBenches, timed_call
from dietcode.bench.programs import calls_of, instances_of, parts_and_moves, sizes_of
from dietcode.frontends.python.reader import program_of
from dietcode.recursion.reader import file_and_object, module_of
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.programs.loaded import BlockRun
from dietcode.runtime.recorded.loaded import RecordedProgram
from dietcode.runtime.recorded.loading import load_recorded

_WORDS = {
    "python": "Python, with recording",
    "waits": "waits",
    "scheduling": "scheduling",
    "results": "arguments and results",
}


def bench_recorded(
    folder: Path,
    program: str,
    vendors: Sequence[str],
    samples: str,
    most: int | None = None,
    rounds: int = 7,
    num_threads: int | None = None,
    weights: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure a recorded program as `dietcode.bench.programs.bench_program` measures another one.

    Parameters
    ----------
    program : str
        ``FILE.py:NAME``, what the bundle was compiled from; the file is run.
    folder, vendors, samples, most, rounds, num_threads, weights
        As there.

    Yields
    ------
    dict
        As there. ``host`` has the parts of a call that are no kernels, measured in traced calls: together
        they may take longer than ``secs``. ``calls`` of waits is their number. ``eager``: what ran eagerly in
        one call, as `RecordedProgram.explain` gives it.

    Raises
    ------
    RequestError
        A vendor is unknown, or there are no instances.
    ModelError
        The file cannot be read, or has no such program.
    Exception
        What an instance raises.
    """
    benches = PartBenches(folder, vendors, num_threads)
    path, name = file_and_object(program)
    loaded = load_recorded(folder, LoadOptions(weights, num_threads), program_of(module_of(path), path, name))
    for instances in calls_of(instances_of(samples), most):
        eager, num_waits = _eager(loaded, instances)
        calls = partial(loaded, instances), partial(_steps, loaded, instances)
        secs, steps, disturbed = timed_call(*calls, rounds, num_threads)
        runs = [(one, own) for one, own in steps if isinstance(one, BlockRun)]
        parts, host = parts_and_moves(loaded, runs, secs, benches, rounds)
        host += [
            {"operator": _WORDS[one], "calls": num_waits if one == "waits" else 1, "secs": own}
            for one, own in steps
            if isinstance(one, str)
        ]
        times = {"secs": secs, "disturbed": disturbed}
        yield {
            "dimensions": sizes_of(instances, runs),
            **times,
            "parts": parts,
            "host": host,
            "eager": eager,
        }


def _steps(program: RecordedProgram, instances: Sequence[Any]) -> list[tuple[BlockRun | str, float]]:
    found = program.profile(instances)
    return [*((one, one.secs) for one in found.runs), *((one, found.secs[one]) for one in _WORDS)]


def _eager(program: RecordedProgram, instances: Sequence[Any]) -> tuple[list[dict[str, Any]], int]:
    """Return what runs eagerly in a call, and how many waits it has."""
    program(instances)  # the first call may compute more eagerly: regions are bound to modules then
    before = Counter({(one["where"], one["reason"]): one["count"] for one in program.explain()})
    num_waits = program.profile(instances).num_waits
    found = program.explain()
    for one in found:
        one["count"] -= before[one["where"], one["reason"]]
    return [one for one in found if one["count"] or one["where"] in program.changed], num_waits
