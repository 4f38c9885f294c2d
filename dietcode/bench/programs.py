"""A program: where the time of a call goes, and the vendors' kernels for each part of its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietcode.bench.models import PartBenches, PartCalls, beside, timed_call
from dietcode.bench.recursions import nearest
from dietcode.errors import RequestError
from dietcode.recursion.reader import file_and_object, module_of, samples_in
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.models.executable import KernelStep
from dietcode.runtime.programs.loaded import BlockRun, LoadedProgram
from dietcode.runtime.programs.loading import load_program
from dietcode.workload.text import clip

if TYPE_CHECKING:
    from dietcode.runtime.recorded.loaded import RecordedProgram

BATCHES = (1, 8)  # instances of a call, beside the most


def bench_program(
    folder: Path,
    vendors: Sequence[str],
    samples: str,
    most: int | None = None,
    rounds: int = 7,
    num_threads: int | None = None,
    weights: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure a program's call, each part of its blocks, and the vendors' kernels for these.

    Parameters
    ----------
    vendors : sequence of str
        ``numpy``, ``torch``; a part that a vendor has no kernel for is measured alone.
    samples : str
        ``FILE.py:NAME``, a list of instances or a function that returns one; the file is run.
    most : int, optional
        How many instances a call has; None for all. Calls of 1 and 8 are measured too.
    rounds : int
        The median is reported.
    weights : Path, optional
        A file of weights; by default the bundle's own.

    Yields
    ------
    dict
        For each number of instances ``dimensions``: how many they are, the runs of blocks and their rows;
        ``secs`` of a call; ``parts`` as `dietcode.bench.models.bench_model` has them, with the ``blocks``
        that they are of and the fewest and most ``rows``; of a block of several parts its time is shared
        out as their kernels take. ``host``: blocks that only move elements, and all that is no run of a
        block; ``disturbed`` as there.

    Raises
    ------
    RequestError
        A vendor is unknown, or there are no instances.
    ModelError
        The file cannot be read.
    ProgramError
        An instance fails.
    """
    benches = PartBenches(folder, vendors, num_threads)
    given = instances_of(samples)
    program = load_program(folder, LoadOptions(weights, num_threads))
    for instances in calls_of(given, most):
        calls = partial(program, instances), partial(_runs, program, instances)
        secs, runs, disturbed = timed_call(*calls, rounds, num_threads)
        parts, host = parts_and_moves(program, runs, secs, benches, rounds)
        rest = secs - sum(own for _, own in runs)
        host.append({"operator": "control flow", "calls": 1, "secs": max(0.0, rest)})
        times = {"secs": secs, "disturbed": disturbed}
        yield {"dimensions": sizes_of(instances, runs), **times, "parts": parts, "host": host}


def calls_of(given: Sequence[Any], most: int | None) -> list[Sequence[Any]]:
    """Return the instances of each call that is measured."""
    largest = min(most or len(given), len(given))
    return [given[:size] for size in sorted({*(one for one in BATCHES if one < largest), largest})]


def sizes_of(instances: Sequence[Any], runs: Sequence[tuple[BlockRun, float]]) -> dict[str, int]:
    """Return how large a call is."""
    return {"instances": len(instances), "runs": len(runs), "rows": sum(one.rows for one, _ in runs)}


def instances_of(samples: str) -> list[Any]:
    """Return the instances of ``FILE.py:NAME``, which is run."""
    path, name = file_and_object(samples)
    found = samples_in(module_of(path), name, path)
    if not isinstance(found, list | tuple) or not found:
        raise RequestError(f"--samples: {clip(samples)} is {clip(found)}; allowed: a list of instances")
    return list(found)


def _runs(program: LoadedProgram, instances: Sequence[Any]) -> list[tuple[BlockRun, float]]:
    return [(one, one.secs) for one in program.block_runs(instances)]


def parts_and_moves(
    program: LoadedProgram | RecordedProgram,
    runs: Sequence[tuple[BlockRun, float]],
    call_secs: float,
    benches: PartBenches,
    rounds: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a row for each part of a block, the slowest first, and one for the blocks that have none."""
    known = {part["digest"]: part for part in program.report["parts"]}
    found: list[dict[str, Any]] = []
    moved: list[float] = []
    table = max(2, *(one.rows for one, _ in runs))  # as full as makes a difference; at most, it is a gigabyte
    for block in program.plan.blocks:
        own = [(one.rows, secs) for one, secs in runs if one.block == block.name]
        steps = [step for step in block.steps if isinstance(step, KernelStep)]
        if not own:
            continue
        if not steps:
            moved += [secs for _, secs in own]
            continue
        sizes = {rows for rows, _ in own}
        rows = []
        for step in steps:
            part = PartCalls()
            for many, _ in own:
                part.calls[tuple(_variables(step, nearest(sizes, many), table).items())] += 1
            row = {"digest": step.digest, "blocks": [block.name], "calls": len(own)}
            row["rows"] = [min(sizes), max(sizes)]
            rows.append(row | beside(benches[step.digest], part, rounds))
        found += _shared_out(rows, sum(secs for _, secs in own))
    host = [{"operator": "moves of elements", "calls": len(moved), "secs": sum(moved)}] if moved else []
    for one in found:
        one |= {word: known[one["digest"]][word] for word in ("kind", "operator")}
        one["share"] = one["secs"] / call_secs
    return sorted(found, key=lambda one: -float(one["secs"])), host


def _shared_out(rows: list[dict[str, Any]], secs: float) -> list[dict[str, Any]]:
    total = sum(row["kernel_secs"] or 0.0 for row in rows)
    for row in rows:
        row["secs"] = secs * (row["kernel_secs"] or 0.0) / total if total else secs / len(rows)
    return rows


def _variables(step: KernelStep, rows: int, table: int) -> dict[str, int]:
    sizes = {"B": rows, "T": table}
    return {name: extent.evaluate(sizes) for name, extent in step.variables.items()}
