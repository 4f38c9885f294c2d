"""Which category the kernels of a program's blocks send numbers of rows to, and how long they should take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.dispatcher.tree import Rule
from dietcode.graph.extent import Extent, parse_extent
from dietcode.recursion.level_runs import Run, level_runs

_SOURCE = re.compile(r"([^\n]+):([0-9]{1,9})(?: to ([0-9]{1,9}))?")  # the text is a stranger's
Points = tuple[tuple[float, float], ...]
FIRST = "-first"  # ends the name of a block of what depends on the instance alone, taken out of another one


@dataclass(frozen=True)
class BlockKernelRuns:
    """A kernel of a block.

    Attributes
    ----------
    block : str
        The name of the block.
    digest : str
        Of the part.
    micro_kernels : tuple of str
        By category.
    runs : list of (int, int, int)
        First and last number of rows, and their category.
    points : tuple of (float, float)
        Rows, and the seconds that are predicted for them; empty where the library says nothing.
    """

    block: str
    digest: str
    micro_kernels: tuple[str, ...]
    runs: list[Run]
    points: Points

    def category_of(self, rows: int) -> int:
        """Return the category of a number of rows; that of the last run for more."""
        return next((category for _, last, category in self.runs if rows <= last), self.runs[-1][2])

    def secs_of(self, rows: int) -> float | None:
        """Return the seconds that are predicted for a number of rows; None where nothing is known."""
        if not self.points:
            return None
        known, secs = zip(*self.points, strict=True)
        beyond = max(1.0, rows / float(known[-1]))
        return beyond * float(np.interp(rows, known, secs))

    def to_json(self, buckets: Mapping[int, int]) -> list[dict[str, Any]]:
        """Return a row for each run of numbers of rows, with how many buckets of samples go there.

        Parameters
        ----------
        buckets : mapping of int to int
            How often a bucket of the block had so many rows.
        """
        found = []
        for first, last, category in self.runs:
            own = {rows: count for rows, count in buckets.items() if first <= rows <= last}
            times = [(self.secs_of(rows) or 0.0) * count for rows, count in own.items()]
            found.append(
                {
                    "block": self.block,
                    "part": self.digest,
                    "rows": [first, last],
                    "category": category,
                    "micro_kernel": self.micro_kernels[category],
                    "runs": sum(own.values()),
                    "predicted_secs": sum(times) if self.points else None,
                }
            )
        return found


def block_kernels(
    description: Mapping[str, Any],
    dispatches: Mapping[str, Mapping[str, Any]],
    reports: Mapping[str, Mapping[str, Any]],
) -> list[BlockKernelRuns]:
    """Return the kernels of all blocks, in the order of their steps; each once for a block.

    Parameters
    ----------
    description : mapping
        ``program.json``.
    dispatches, reports : mapping of str to mapping
        ``dispatch.json`` and ``report.json`` of each library, by the digest of its part.
    """
    found: dict[tuple[str, str], BlockKernelRuns] = {}
    for block in description["blocks"]:
        for step in block["steps"]:
            if "kernel" not in step:  # a move of elements
                continue
            digest = str(step["kernel"])
            dispatch = dispatches[digest]
            variables = {name: parse_extent(one) for name, one in step["variables"].items()}
            names = tuple(str(one["micro_kernel"]) for one in dispatch["categories"])
            runs = level_runs(Rule.from_json(dispatch["rule"]), variables, int(block["max_batch"]))
            points = _points(variables, reports.get(digest, {}).get("instances", ()))
            kernel = BlockKernelRuns(str(block["name"]), digest, names, runs, points)
            found.setdefault((kernel.block, digest), kernel)
    return list(found.values())


def sources_of(block: Mapping[str, Any]) -> str:
    """Return the lines that a block of ``program.json`` comes from, as ``trees.py:3…5``."""
    named = {str(one) for step in block["steps"] for one in step.get("sources", ())}
    found = (_SOURCE.fullmatch(one) for one in named)
    pairs = sorted((one[1], int(line)) for one in found if one for line in one.groups()[1:] if line)
    if not pairs:
        return ""
    lines = [line for file, line in pairs if file == pairs[0][0]]
    end = "" if lines[0] == lines[-1] else f"…{lines[-1]}"
    return f"{pairs[0][0]}:{lines[0]}{end}"


def _points(variables: Mapping[str, Extent], instances: Sequence[Mapping[str, Any]]) -> Points:
    """Return seconds by rows, where a report has FLOPs and rates of instances."""
    name = next((name for name, extent in variables.items() if "B" in extent.variables), None)
    if name is None:
        return ()
    one, two = (variables[name].evaluate({"B": rows, "T": 1}) for rows in (1, 2))
    found: dict[float, float] = {}
    for instance in instances:
        flops, rate = instance.get("flops"), instance.get("predicted_gflops")
        if flops and rate:
            found[1 + (instance["shape_vars"][name] - one) / (two - one)] = flops / (1e9 * rate)
    return tuple(sorted(found.items()))
