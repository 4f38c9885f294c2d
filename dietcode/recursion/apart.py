"""Whether what a cell of separate children stacks, or views as rows, is taken apart: where it saves work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from dietcode.errors import ModelError
from dietcode.graph.cells import Cells
from dietcode.recursion.unrolling import taken_apart

Work: TypeAlias = tuple[int, ...]


def of_least_work(cells: Cells, work: Callable[[Cells], Work]) -> Cells:
    """Return the cells, or those that `taken_apart` makes of them where a level is less work then.

    Parameters
    ----------
    cells : Cells
    work : callable
        Multiplications of a node, kernels of a level, these and moves; raises ModelError where no kernels
        compute the cells.
    """
    if cells.is_sum:
        return cells
    apart = replace(cells, cell=taken_apart(cells.cell))
    if len(apart.cell.nodes) == len(cells.cell.nodes):
        return cells
    return min((cells, apart), key=lambda one: _work(one, work))


def _work(cells: Cells, work: Callable[[Cells], Work]) -> tuple[bool, Work]:
    try:
        return False, work(cells)
    except ModelError:
        return True, ()
