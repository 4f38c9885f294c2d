"""The passes over a row: what each computes, and what is kept from one to the next.

A value that depends on a reduction is known one pass later than the reduction's operand, so softmax takes
three passes: the maximum, the exponentials and their sum, the quotients. The row stays in L1 or L2 between
them. Imports no compiler."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.search_space.rows.problem import RowProblem
from dietcode.workload.expansion import REDUCTIONS, Primitive

COSTLY = frozenset(
    {
        *("exp", "exp-of-negative", "log", "sin", "cos", "tanh", "sigmoid", "silu", "gelu"),
        *("div", "sqrt", "rsqrt"),
    }
)
"""Pointwise functions that take longer than reading their result from L1."""


@dataclass(frozen=True)
class Pass:
    """One way through a row.

    Attributes
    ----------
    elements : tuple of Primitive
        Wide values that it computes, each after its operands.
    reductions : tuple of Primitive
        Those that it adds up; their results are known after it.
    scalars : tuple of Primitive
        Narrow values that are known after it, each after its operands.
    stores : tuple of str
        Values that it writes, to outputs or to what is kept.
    loads : tuple of str
        Values that earlier passes wrote and that it reads.
    """

    elements: tuple[Primitive, ...]
    reductions: tuple[Primitive, ...]
    scalars: tuple[Primitive, ...]
    stores: tuple[str, ...]
    loads: tuple[str, ...]


@dataclass(frozen=True)
class Schedule:
    """All passes over a row.

    Attributes
    ----------
    before : tuple of Primitive
        Narrow values that depend on no reduction, computed before the first pass.
    kept : tuple of str
        Values that are kept in a buffer of the task; those that are outputs are kept there.
    """

    before: tuple[Primitive, ...]
    passes: tuple[Pass, ...]
    kept: tuple[str, ...]

    def num_groups(self, overlap: str) -> int:
        """Return how many groups of rows have kept values at once.

        Parameters
        ----------
        overlap : str
            ``none``; ``before``: the first pass of the next rows comes before the last one of these;
            ``beside``: each pass is in one loop with the pass before it of the next rows.
        """
        stored = {name: number for number, one in enumerate(self.passes) for name in one.stores}
        waits = [
            (stored[name], number)
            for number, one in enumerate(self.passes)
            for name in one.loads
            if name in self.kept
        ]
        if overlap == "beside":
            return 1 + max((read - wrote for wrote, read in waits), default=0)
        return 2 if overlap == "before" and (0, len(self.passes) - 1) in waits else 1


def schedule(problem: RowProblem, keep: str) -> Schedule:
    """Return the passes over a row.

    Parameters
    ----------
    keep : str
        What later passes read of what earlier ones computed, not computing it again: ``costly``, what takes
        long, ``all`` or ``none``.
    """
    wide = {p.name: p for p in problem.primitives if _is_wide(problem, p)}
    levels = _levels(problem)
    in_passes = [p for p in problem.primitives if p.name in wide or p.kind in REDUCTIONS]
    num_passes = 1 + max((_pass_of(p, levels) for p in in_passes), default=-1)
    stored_in: dict[str, int] = {}  # values that may be read again, by the first pass that computes them
    found: list[Pass] = []
    computed: dict[str, int] = {}
    for number in range(num_passes):
        reductions = tuple(
            p for p in problem.primitives if p.kind in REDUCTIONS and _pass_of(p, levels) == number
        )
        targets = [p.operands[0] for p in reductions]
        targets += [name for name in problem.outputs if name in wide and levels[name] == number]
        elements: dict[str, Primitive] = {}
        loads: dict[str, None] = {}

        def need(
            name: str | float,
            number: int = number,
            elements: dict[str, Primitive] = elements,
            loads: dict[str, None] = loads,
        ) -> None:
            if not isinstance(name, str) or name not in wide or name in elements or name in loads:
                return
            is_early = computed.get(name, number) < number
            if is_early and (keep == "all" or (keep == "costly" and _is_costly(name, wide))):
                loads[name] = None
                stored_in.setdefault(name, computed[name])
                return
            for operand in wide[name].operands:
                need(operand)
            elements[name] = wide[name]

        for target in targets:
            need(target)
        for name in elements:
            computed.setdefault(name, number)
        scalars = tuple(
            p
            for p in problem.primitives
            if p.name not in wide and p.kind not in REDUCTIONS and levels[p.name] == number + 1
        )
        found.append(Pass(tuple(elements.values()), reductions, scalars, (), tuple(loads)))
    outputs = {name: levels[name] for name in problem.outputs if name in wide}
    passes = []
    for number, one in enumerate(found):
        stores = [name for name, own in outputs.items() if own == number]
        stores += [name for name, own in stored_in.items() if own == number and name not in outputs]
        passes.append(Pass(one.elements, one.reductions, one.scalars, tuple(stores), one.loads))
    before = tuple(
        p
        for p in problem.primitives
        if p.name not in wide and p.kind not in REDUCTIONS and not levels[p.name]
    )
    # An output is read where it was written, unless that is a table, which may lack its row.
    kept = tuple(name for name in stored_in if name not in outputs or name in problem.into)
    return Schedule(before, tuple(passes), kept)


def _is_wide(problem: RowProblem, primitive: Primitive) -> bool:
    return primitive.kind not in REDUCTIONS and problem.is_wide(primitive.indices)


def _levels(problem: RowProblem) -> dict[str, int]:
    """Return the pass in which each value is known, 0 being the first, by name."""
    levels = dict.fromkeys(problem.reads, 0)
    for p in problem.primitives:
        own = max((levels[operand] for operand in p.operands if isinstance(operand, str)), default=0)
        levels[p.name] = own + (p.kind in REDUCTIONS)
    return levels


def _pass_of(primitive: Primitive, levels: dict[str, int]) -> int:
    """Return the pass that computes a wide value or a reduction."""
    level = levels[primitive.name]
    return level - 1 if primitive.kind in REDUCTIONS else level


def _is_costly(name: str, wide: dict[str, Primitive]) -> bool:
    primitive = wide[name]
    if primitive.kind in COSTLY:
        return True
    return any(_is_costly(o, wide) for o in primitive.operands if isinstance(o, str) and o in wide)
