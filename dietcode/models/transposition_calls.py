"""Copies that a transposition needs, where elements have to lie one after the other: blocks.

Where the last axis stays the last one, rows are copied as they are, which NumPy does as fast.
"""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent, product_of
from dietcode.graph.graph import Graph, Node
from dietcode.models.kernel_call import Argument, KernelCall
from dietcode.models.units import HOST_ELEMENTS

_LETTERS = "bhqtuvwn"


def transposition_call(graph: Graph, node: Node, result: str) -> KernelCall | None:
    """Return the call that writes what a transpose gives, its elements in order; None where the host copies.

    Parameters
    ----------
    node : Node
        A ``transpose`` whose operand lies in order.
    result : str
        The name of what is written.
    """
    x = str(node.operands[0])
    shape = graph.types[x].shape
    most = product_of(shape).bounds(graph.ranges)[1]
    if graph.types[x].dtype != "float32" or most <= HOST_ELEMENTS:
        return None
    groups = _kept_together(shape, [int(axis) for axis in node.attributes["axes"]])
    if not 1 < len(groups) <= len(_LETTERS) or groups[-1][-1] == max(axes[-1] for axes in groups):
        return None
    extents = {axes[0]: product_of([shape[axis] for axis in axes]) for axes in groups}
    letters = dict(zip(sorted(extents), _LETTERS, strict=False))
    dims = {letters[axis]: extents[axis] for axis in sorted(extents)}
    order = "".join(letters[axes[0]] for axes in groups)
    body = {"Y": {"transpose": "X", "dims": order}}
    return KernelCall(
        {"block": {"version": 1, "graph": body, "outputs": ["Y"]}},
        {"X": {"dims": "".join(dims), "dtype": "float32"}},
        dims,
        {"X": Argument(x, tuple(dims.values()))},
        [Argument(result, tuple(dims[letter] for letter in order))],
        product_of(shape),
    )


def _kept_together(shape: tuple[Extent, ...], axes: list[int]) -> list[list[int]]:
    """Return the axes in their new order, those as one group that follow each other before and after."""
    groups: list[list[int]] = []
    wide = [axis for axis in range(len(shape)) if shape[axis] != ONE]
    for axis in (one for one in axes if one in wide):
        last = groups[-1][-1] if groups else None
        if last is not None and wide.index(axis) == wide.index(last) + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups
