"""Which category a kernel of a recursion sends each number of rows to: its rule, read along one dimension."""

from __future__ import annotations

from collections.abc import Mapping

from dietcode.dispatcher.tree import Branch, Node, Rule
from dietcode.graph.extent import Extent

Run = tuple[int, int, int]
_ROWS, _TABLE = "B", "T"
_TABLE_ROWS = 1024  # tables hardly matter, and are tuned for at one value


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
    begins = {1}
    for variable, threshold in _thresholds(rule.root):
        begins.update(_begin_after(variables[variable], threshold, most))
    runs: list[Run] = []
    ordered = [*sorted(begins), most + 1]
    for first, following in zip(ordered, ordered[1:], strict=False):
        category = rule.select({name: _value(extent, first) for name, extent in variables.items()})
        if runs and runs[-1][2] == category:
            runs[-1] = (runs[-1][0], following - 1, category)
        else:
            runs.append((first, following - 1, category))
    return runs


def category_of(runs: list[Run], rows: int) -> int:
    """Return the category of a number of rows; that of the last run for more."""
    return next((category for _, last, category in runs if rows <= last), runs[-1][2])


def _thresholds(root: Node) -> list[tuple[str, int]]:
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Branch):
            found.append((node.variable, node.threshold))
            waiting += [node.below, node.above]
    return found


def _value(extent: Extent, rows: int) -> int:
    nodes = max(rows, _TABLE_ROWS - 1)
    return extent.evaluate({_ROWS: rows, "N": nodes, _TABLE: nodes + 1})


def _begin_after(extent: Extent, threshold: int, most: int) -> list[int]:
    """Return the first number of rows for which an extent, which grows with it, is above a threshold."""
    low, high = 1, most + 1
    if _value(extent, low) > threshold:
        return []
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _value(extent, middle) <= threshold else (low, middle)
    return [high] if high <= most else []
