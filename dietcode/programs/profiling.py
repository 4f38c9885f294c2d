"""How often each number of rows comes, and which block reads which, by running samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dietcode.errors import ModelError
from dietcode.graph.program_model import MAX_SHOWN, NUMBER, Bucket, Lowest
from dietcode.programs.checking import difference
from dietcode.programs.exporting import run_group
from dietcode.programs.forming import Formed
from dietcode.programs.interpreter import FormRun, InstanceError, Sources

BATCHES = (1, 8)  # instances of a call that count beside all samples at once


@dataclass(frozen=True)
class Profile:
    """What samples say of the calls of blocks.

    Attributes
    ----------
    buckets : tuple of dict of int to int
        Of each block, how often a bucket had so many rows.
    together : tuple of dict of int to int
        Of each block, how often so many of its nodes were noted between two decisions.
    edges : tuple of (int, int)
        (reader, read) blocks.
    shown : tuple of Bucket
        Those of the largest call of samples that has few enough of them for a picture.
    lowest : tuple of Lowest or None
        Of each block, its calls whose computed operands come from whole numbers alone, of the most frequent
        kind.
    """

    buckets: tuple[dict[int, int], ...]
    together: tuple[dict[int, int], ...]
    edges: tuple[tuple[int, int], ...]
    shown: tuple[Bucket, ...]
    lowest: tuple[Lowest | None, ...]


def torch_blocks(formed: Formed) -> Any:
    """Return what computes the blocks of a program by PyTorch, row by row."""
    import torch

    def compute(block: int, rows: list[list[Any]]) -> list[list[Any]]:
        group = formed.blocks[block].group
        numbers = [one.number for one in group.operands]
        types = formed.blocks[block].operands
        found = []
        with torch.no_grad():
            for row in rows:
                given = [
                    torch.as_tensor(one, dtype=torch.int64 if dtype == "int32" else torch.float32)
                    for one, (dtype, _) in zip(row, types, strict=True)
                ]
                found.append(list(run_group(group, dict(zip(numbers, given, strict=True)))))
        return found

    return compute


def tensors_of(formed: Formed) -> list[Any]:
    """Return the weights that are values of the program."""
    import torch

    arrays = formed.weights.arrays
    return [torch.from_numpy(arrays[one["value"]]) for one in formed.form["tensors"]]


def profile(
    formed: Formed,
    samples: Sequence[Callable[[], Sequence[Any]]],
    wanted: Sequence[Any],
    *,
    with_phases: bool = True,
) -> Profile:
    """Count the buckets of samples: all in one call, and in calls of a few.

    Parameters
    ----------
    formed : Formed
    samples : sequence of callable
        Each gives the arguments of an instance, which a run may change.
    wanted : sequence
        What the function itself gives for each.
    with_phases : bool
        Whether buckets are counted by phase, or by depth alone.

    Raises
    ------
    ModelError
        A sample fails, or gives something else.
    """
    many = len(formed.blocks)
    compute, tensors = torch_blocks(formed), tensors_of(formed)
    first = _run(FormRun(formed.form, [0] * many, compute, tensors), samples, wanted)
    phases = phases_of(first.edges, many) if with_phases else [0] * many
    buckets: list[Counter[int]] = [Counter() for _ in range(many)]
    together: list[Counter[int]] = [Counter() for _ in range(many)]
    shown: list[Bucket] = []
    runs: list[FormRun] = []
    of_number = {number for number, one in enumerate(formed.blocks) if one.operands == (NUMBER,)}
    for size in sorted({len(samples), *(one for one in BATCHES if one < len(samples))}):
        form_run = FormRun(formed.form, phases, compute, tensors, of_number=of_number)
        run = _run(form_run, samples[:size], wanted[:size])
        runs.append(run)
        for _, _, block, rows in run.buckets:
            buckets[block][rows] += 1
        if not shown or len(run.buckets) <= MAX_SHOWN:
            shown = run.buckets[:MAX_SHOWN]
        for counts in run.flushes:
            for block, rows in counts.items():
                together[block][rows] += 1
    edges = tuple(sorted(first.edges))
    lowest = tuple(lowest_of(runs, block) for block in range(many))
    return Profile(tuple(map(dict, buckets)), tuple(map(dict, together)), edges, tuple(shown), lowest)


class CountedRun(Protocol):
    """A run of samples that counts the rows of its buckets.

    Attributes
    ----------
    buckets : list of (int, int, int, int)
        Flush, key, block and rows of each.
    sources : list of Counter
        Of each bucket, how many of its rows had which sources.
    """

    buckets: list[tuple[int, int, int, int]]
    sources: list[Counter[Sources | None]]


def lowest_of(runs: Sequence[CountedRun], block: int) -> Lowest | None:
    """Return the calls of a block whose computed operands are of whole numbers alone; None for none."""
    kinds: Counter[Sources] = Counter()
    for run in runs:
        for bucket, sources in zip(run.buckets, run.sources, strict=True):
            if bucket[2] == block:
                kinds.update({one: count for one, count in sources.items() if one is not None})
    if not kinds:
        return None
    ((chosen, _),) = kinds.most_common(1)
    rows, rest = Counter[int](), Counter[int]()
    for run in runs:
        of_flush = Counter[int]()
        for (flush, _, own, count), sources in zip(run.buckets, run.sources, strict=True):
            if own != block:
                continue
            of_flush[flush] += sources[chosen]
            if count > sources[chosen]:
                rest[count - sources[chosen]] += 1
        rows.update(count for count in of_flush.values() if count)
    return Lowest(chosen, dict(rows), dict(rest))


def _run(run: FormRun, samples: Sequence[Callable[[], Sequence[Any]]], wanted: Sequence[Any]) -> FormRun:
    found = run.run([one() for one in samples])
    for number, (one, right) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(one, InstanceError):
            raise ModelError(f"--samples: instance {number}: {one}; samples are instances that are computed")
        words = difference(one, right)
        if words is not None:
            raise ModelError(
                f"--samples: instance {number}: compiled, the program gives {words} as the function does; "
                "calls of dietcode.concurrent and dietcode.map may not change what others read"
            )
    return run


def phases_of(edges: Mapping[Any, Any] | Any, many: int) -> list[int]:
    """Return a phase for each block: after those that it reads, where they do not read it too.

    Parameters
    ----------
    edges : iterable of (int, int)
        (reader, read).
    many : int
        The number of blocks.
    """
    read: list[set[int]] = [set() for _ in range(many)]
    for reader, one in edges:
        read[reader].add(one)
    below = [_reached(read, block) for block in range(many)]
    phases = [-1] * many

    def phase(block: int) -> int:
        if phases[block] < 0:
            earlier = [one for one in below[block] if block not in below[one] and one != block]
            phases[block] = 1 + max(map(phase, earlier), default=-1)
        return phases[block]

    return [phase(block) for block in range(many)]


def _reached(read: Sequence[set[int]], block: int) -> set[int]:
    found: set[int] = set()
    waiting = [block]
    while waiting:
        new = read[waiting.pop()] - found
        found |= new
        waiting += new
    return found
