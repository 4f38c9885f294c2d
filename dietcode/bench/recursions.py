"""A recursion: where the time of a call goes, and the vendors' kernels for each of its parts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dietcode.bench.compare import Bench, spread
from dietcode.bench.models import PartBenches, PartCalls, beside, timed_call
from dietcode.errors import RequestError, ShapeError
from dietcode.graph.samples import read_samples
from dietcode.recursion.sampling import load_structures
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.models.executable import KernelStep
from dietcode.runtime.recursion.loaded import LoadedRecursion
from dietcode.runtime.recursion.loading import load_recursion
from dietcode.runtime.recursion.moves import MoveStep
from dietcode.runtime.recursion.structure import Structure

_MOST_SIZES = 8  # of a part that are timed beside the vendors; each of them takes a good part of a second

# The phase, the step and the rows of what was run, and the seconds.
_Steps: TypeAlias = Sequence[tuple[tuple[str, KernelStep | MoveStep, int], float]]


def bench_recursion(
    folder: Path,
    vendors: Sequence[str],
    structures: Path | None = None,
    num_structures: int | None = None,
    rounds: int = 7,
    num_threads: int | None = None,
    weights: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure a recursion's call, each of its parts, and the vendors' kernels for these.

    Parameters
    ----------
    vendors : sequence of str
        ``numpy``, ``torch``; a part that a vendor has no kernel for is measured alone.
    structures : Path, optional
        Of ``numpy.savez``: arrays of children, each what one call is given. By default the sample that the
        bundle keeps.
    num_structures : int, optional
        How many of them, from the smallest to the largest; None for all.
    rounds : int
        The median is reported.
    weights : Path, optional
        A file of weights; by default the bundle's own.

    Yields
    ------
    dict
        For each structure its name; ``dimensions``, the numbers of nodes, leaves, levels and roots; ``secs``
        of a call, and ``structure_secs`` of putting its nodes into order before the first one; ``parts`` as
        `dietcode.bench.models.bench_model` has them, with ``phases`` and the fewest and most ``rows``;
        ``host``, the moves of elements, and ``disturbed`` as there. Of a part that is called with many sizes
        some are timed beside the vendors, in the place of those near them.

    Raises
    ------
    RequestError
        A vendor is unknown, a structure is too large, or there is none.
    ModelError
        The file holds something else.
    """
    benches = PartBenches(folder, vendors, num_threads)
    model = load_recursion(folder, LoadOptions(weights, num_threads))
    given = _samples(model) if structures is None else load_structures(structures)
    if num_structures is not None:
        given = [given[at] for at in spread(len(given), num_structures)]
    parts = {part["digest"]: part for part in model.report["parts"]}
    for name, structure in given:
        x = model.random_inputs(structure)
        try:
            calls = partial(model, structure, x), partial(model.step_secs, structure, x)
            secs, steps, disturbed = timed_call(*calls, rounds, num_threads)
        except ShapeError as error:
            raise RequestError(f"--structures: {name}: {error}") from None
        rows = []
        for digest, part in _by_part(steps, structure.num_nodes).items():
            row = {word: parts[digest][word] for word in ("digest", "kind", "operator")}
            row |= _facts(benches[digest], steps, part, structure.num_nodes, secs)
            rows.append(beside(benches[digest], part, rounds) | row)
        rows.sort(key=lambda row: -float(row["secs"]))
        sizes = {
            "nodes": structure.num_nodes,
            "leaves": structure.num_leaves,
            "levels": structure.num_levels,
            "roots": len(structure.roots),
        }
        moves = [own for (_, step, _), own in steps if isinstance(step, MoveStep)]
        host = [{"operator": "move", "calls": len(moves), "secs": sum(moves)}] if moves else []
        times = {"secs": secs, "structure_secs": structure.linearize_secs, "disturbed": disturbed}
        yield {"structure": name, "dimensions": sizes, **times, "parts": rows, "host": host}


def _samples(model: LoadedRecursion) -> list[tuple[str, Structure]]:
    """Return the sample structure that a bundle keeps."""
    samples = model.manifest.get("samples")
    shown = () if samples is None else read_samples(samples).shown
    if not shown:
        raise RequestError(
            f"{model.folder}: keeps no sample structure; give --structures FILE.npz with arrays of children"
        )
    children = np.full((len(shown), max(map(len, shown))), -1, np.int32)
    for node, row in enumerate(shown):
        children[node, : len(row)] = row
    return [("sample", Structure(children))]


def _by_part(steps: _Steps, num_nodes: int) -> dict[str, PartCalls]:
    """Return the calls of each library; the sizes of a part are at most `_MOST_SIZES`."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for (_, step, rows), _ in steps:
        if isinstance(step, KernelStep):
            sizes[step.digest].add(rows)
    found: dict[str, PartCalls] = {}
    for number, ((_, step, rows), _) in enumerate(steps):
        if isinstance(step, KernelStep):
            part = found.setdefault(step.digest, PartCalls())
            part.numbers.append(number)
            part.calls[tuple(_variables(step, nearest(sizes[step.digest], rows), num_nodes).items())] += 1
    return found


def nearest(sizes: set[int], rows: int) -> int:
    """Return the one of some sizes, which stand for all, that is nearest to a number of rows by ratio."""
    ordered = sorted(sizes)
    kept = [ordered[at] for at in spread(len(ordered), _MOST_SIZES)]
    return min(kept, key=lambda size: abs(math.log(size / rows)))


def _variables(step: KernelStep, rows: int, num_nodes: int) -> Mapping[str, int]:
    sizes = {"B": rows, "N": num_nodes, "T": num_nodes + 1}
    return {name: extent.evaluate(sizes) for name, extent in step.variables.items()}


def _facts(bench: Bench, steps: _Steps, part: PartCalls, num_nodes: int, secs: float) -> dict[str, Any]:
    """Return what a part does in a call of some seconds."""
    own = [steps[number] for number in part.numbers]
    names = bench.library.argument_names[1]
    categories, phases, spent = set(), [], 0.0
    for (phase, step, rows), one in own:
        assert isinstance(step, KernelStep)  # as `_by_part` numbers no other
        values = _variables(step, rows, num_nodes)
        categories.add(bench.library.select(**{name: values[name] for name in names}))
        phases.append(phase)
        spent += one
    sizes = [rows for (_, _, rows), _ in own]
    return {
        "phases": list(dict.fromkeys(phases)),
        "rows": [min(sizes), max(sizes)],
        "categories": sorted(categories),
        "calls": len(own),
        "secs": spent,
        "share": spent / secs,
    }
