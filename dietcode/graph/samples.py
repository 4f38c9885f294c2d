"""What sample structures say of calls of a recursion: how often each number of rows comes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.fields import read_list, read_mapping, read_whole
from dietcode.workload.text import clip

Histogram = Mapping[int, int]
MAX_SHOWN = 400  # nodes of the structure that is kept
MARGIN = 2  # of the largest structures, where nobody says how large they may be
ALWAYS = (1, 2, 4, 8)  # rows that every kernel is tuned for
_POINTS = 14
_MAX_SIZES, _MAX_COUNT, _MAX_SIZE = 4096, 2**40, 2**24
_LEAST = 0.01  # of the whole weight: that of rows that no sample has
_FIELDS = ("calls", "nodes", "leaves", "levels", "shown")


@dataclass(frozen=True)
class Samples:
    """Sample structures, each of them what one call is given, as counts.

    Attributes
    ----------
    num_calls : int
    nodes, leaves : mapping of int to int
        How many calls have so many nodes, and so many leaves.
    levels : mapping of int to int
        How many levels of all calls have so many nodes; leaves are none of them.
    shown : tuple of tuple of int
        The children of each node of a sample, for a picture; empty where all have too many nodes.
    """

    num_calls: int
    nodes: Histogram
    leaves: Histogram
    levels: Histogram
    shown: tuple[tuple[int, ...], ...] = ()

    @property
    def max_nodes(self) -> int:
        """The nodes of the largest call."""
        return max(self.nodes)

    @property
    def max_level(self) -> int:
        """The nodes of the largest level; 1 where there are leaves alone."""
        return max(self.levels, default=1)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_samples`."""
        counts = {key: getattr(self, key) for key in ("nodes", "leaves", "levels")}
        return {
            "calls": self.num_calls,
            **{key: {str(k): own[k] for k in sorted(own)} for key, own in counts.items()},
            "shown": [list(row) for row in self.shown],
        }


def read_samples(data: Any) -> Samples:
    """Return what `Samples.to_json` wrote, or what anybody else did.

    Raises
    ------
    ModelError
        It is none; names the field, what was given and what is allowed.
    """
    data = read_mapping(data, "samples", _FIELDS)
    num_calls = read_whole(data.get("calls"), "samples.calls", 1, _MAX_COUNT)
    nodes, leaves, levels = (
        read_histogram(data.get(key), f"samples.{key}") for key in ("nodes", "leaves", "levels")
    )
    if not nodes or not leaves:
        raise ModelError("samples: given no nodes or no leaves; allowed: structures that have some")
    return Samples(num_calls, nodes, leaves, levels, _shown(data.get("shown", [])))


def read_histogram(given: Any, field: str) -> dict[int, int]:
    """Return counts by size, of a field that anybody wrote; raises ModelError for anything else."""
    allowed = f"counts by size, as {{'12': 3}}, at most {_MAX_SIZES} of them"
    if not isinstance(given, Mapping) or len(given) > _MAX_SIZES:
        raise ModelError(f"{field}: given {clip(given)}; allowed: {allowed}")
    found: dict[int, int] = {}
    for size, count in given.items():
        is_number = isinstance(size, str) and size.isascii() and size.isdigit() and len(size) <= 8
        if not is_number or not 1 <= int(size) <= _MAX_SIZE:
            raise ModelError(f"{field}: given the size {clip(size)}; allowed: 1 to {_MAX_SIZE}")
        found[int(size)] = read_whole(count, f"{field}.{size}", 1, _MAX_COUNT)
    return found


def _shown(given: Any) -> tuple[tuple[int, ...], ...]:
    """Read a structure for a picture; its children come before their parents."""
    rows = []
    for node, row in enumerate(read_list(given, "samples.shown", MAX_SHOWN)):
        if not isinstance(row, list) or any(type(one) is not int or not 0 <= one < node for one in row):
            allowed = "numbers of nodes before it"
            raise ModelError(f"samples.shown.{node}: given {clip(row)}; allowed: {allowed}")
        rows.append(tuple(row))
    return tuple(rows)


def row_weights(histogram: Histogram | None, most: int) -> dict[int, float]:
    """Return what each number of rows counts when a kernel is tuned.

    Without samples they are even in the logarithm. `ALWAYS` and the largest are there in any case, with a
    hundredth of the whole at least.

    Parameters
    ----------
    histogram : mapping of int to int, or None
        Sizes above `most` are computed in pieces.
    most : int
        The most rows of a call.
    """
    if not histogram:
        ratio = math.log(most)
        points = {round(math.exp(ratio * k / (_POINTS - 1))) for k in range(_POINTS)}
        return dict.fromkeys(sorted(points | {1, most} | _small(most)), 1.0)
    pieces: Counter[int] = Counter()
    for size, count in histogram.items():
        whole, rest = divmod(size, most)
        if whole:
            pieces[most] += whole * count
        if rest:
            pieces[rest] += count
    total = pieces.total()
    found = {size: round(count / total, 6) for size, count in _merged(pieces).items()}
    for size in {most, *_small(most)}:
        found[size] = max(found.get(size, 0.0), _LEAST)
    return {size: max(found[size], 1e-6) for size in sorted(found)}


def by_cost(counts: Histogram) -> dict[int, int]:
    """Return counts of runs, each of which counts as the square root of its rows, in thousandths.

    A run of one row costs about as much as one of four; beyond, time grows with the rows. Counted alike,
    the few large runs that most of a call's time goes to would hardly be tuned for; counted by their rows,
    calls of one instance would not be.

    Parameters
    ----------
    counts : mapping of int to int
        How often a run has so many rows.
    """
    return {rows: round(1000 * count * math.sqrt(rows)) for rows, count in counts.items()}


def _small(most: int) -> set[int]:
    return {size for size in ALWAYS if size <= most}


def _merged(counts: Mapping[int, int]) -> dict[int, int]:
    """Return counts of at most so many sizes as there are points: neighbours become their mean."""
    if len(counts) <= _POINTS:
        return dict(counts)
    low, high = min(counts), max(counts)
    step = math.log(high / low) / _POINTS
    groups: dict[int, list[tuple[int, int]]] = {}
    for size, count in counts.items():
        groups.setdefault(min(_POINTS - 1, int(math.log(size / low) / step)), []).append((size, count))
    found: Counter[int] = Counter()
    for group in groups.values():
        total = sum(count for _, count in group)
        found[round(sum(size * count for size, count in group) / total)] += total
    return dict(found)


def levels_of(children: Sequence[Iterable[int]]) -> list[list[int]]:
    """Return the nodes of each level, leaves first: a level is the longest way down to a leaf.

    Parameters
    ----------
    children : sequence of iterable of int
        Of each node, numbers of nodes before it.
    """
    heights: list[int] = []
    for row in children:
        heights.append(1 + max((heights[one] for one in row), default=-1))
    levels: list[list[int]] = [[] for _ in range(max(heights, default=-1) + 1)]
    for node, height in enumerate(heights):
        levels[height].append(node)
    return levels
