"""Which category a kernel of a recursion sends each number of rows to: its rule, read along one dimension."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.dispatcher.tree import Branch, Node, Rule, has_modulus
from dietcode.graph.extent import Extent, parse_extent
from dietcode.graph.samples import Histogram, Samples

Run = tuple[int, int, int]
PHASES = ("before", "leaf", "first", "cell")
_TABLE_ROWS = 1024  # tables hardly matter, and are tuned for at one value


@dataclass(frozen=True)
class KernelRuns:
    """Where a kernel of a recursion sends numbers of rows.

    Attributes
    ----------
    phase : str
        before, leaf, first or cell.
    digest : str
        Of the part.
    micro_kernels : tuple of str
        By category.
    runs : list of (int, int, int)
        First and last number of rows, and their category.
    """

    phase: str
    digest: str
    micro_kernels: tuple[str, ...]
    runs: list[Run]

    def category_of(self, rows: int) -> int:
        """Return the category of a number of rows; that of the last run for more."""
        return next((category for _, last, category in self.runs if rows <= last), self.runs[-1][2])

    def to_json(self, samples: Samples | None) -> list[dict[str, Any]]:
        """Return a row for each run, with the number of levels, leaves or calls of the samples."""
        counts = None if samples is None else _histogram(self.phase, samples)
        return [
            {
                "phase": self.phase,
                "part": self.digest,
                "rows": [first, last],
                "category": category,
                "micro_kernel": self.micro_kernels[category],
                "samples": None
                if counts is None
                else sum(count for size, count in counts.items() if first <= size <= last),
            }
            for first, last, category in self.runs
        ]


def kernel_runs(
    description: Mapping[str, Any], dispatches: Mapping[str, Mapping[str, Any]]
) -> list[KernelRuns]:
    """Return where each kernel of a recursion sends numbers of rows, in the order of its steps.

    Parameters
    ----------
    description : mapping
        ``recursion.json``.
    dispatches : mapping of str to mapping
        ``dispatch.json`` of each library, by the digest of its part.
    """
    found: list[KernelRuns] = []
    for phase in PHASES:
        most = int(description["max_level" if phase in ("first", "cell") else "max_nodes"])
        for step in description.get(phase, []):
            if "kernel" not in step:  # a move of elements
                continue
            digest = str(step["kernel"])
            dispatch = dispatches[digest]
            variables = {name: parse_extent(one) for name, one in step["variables"].items()}
            names = tuple(str(one["micro_kernel"]) for one in dispatch["categories"])
            runs = level_runs(Rule.from_json(dispatch["rule"]), variables, most)
            if not any(one.phase == phase and one.digest == digest for one in found):
                found.append(KernelRuns(phase, digest, names, runs))
    return found


def _histogram(phase: str, samples: Samples) -> Histogram:
    return {"before": samples.nodes, "leaf": samples.leaves}.get(phase, samples.levels)


def level_runs(rule: Rule, variables: Mapping[str, Extent], most: int) -> list[Run]:
    """Return runs ``(first, last, category)`` of numbers of rows, from 1 to `most`.

    Parameters
    ----------
    rule : Rule
    variables : mapping of str to Extent
        What each of its shape variables is of the rows B, the nodes N, and the rows T of a table.
    most : int
        The most rows of a call.
    """
    # By remainders any number may be the first of a run.
    begins = set(range(1, most + 1)) if has_modulus(rule.root) else {1}
    for variable, threshold in _thresholds(rule.root):
        begins.update(_begin_after(variables[variable], threshold, most))
    runs: list[Run] = []
    for first, following in itertools.pairwise([*sorted(begins), most + 1]):
        category = rule.select({name: _value(extent, first) for name, extent in variables.items()})
        if runs and runs[-1][2] == category:
            runs[-1] = (runs[-1][0], following - 1, category)
        else:
            runs.append((first, following - 1, category))
    return runs


def _thresholds(root: Node) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Branch):
            found.append((node.variable, node.threshold))
            waiting += [node.below, node.above]
    return found


def _value(extent: Extent, rows: int) -> int:
    nodes = max(rows, _TABLE_ROWS - 1)
    return extent.evaluate({"B": rows, "N": nodes, "T": nodes + 1})


def _begin_after(extent: Extent, threshold: int, most: int) -> list[int]:
    """Return the first number of rows for which an extent, which grows with it, is above a threshold."""
    low, high = 1, most + 1
    if _value(extent, low) > threshold:
        return []
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _value(extent, middle) <= threshold else (low, middle)
    return [high] if high <= most else []
