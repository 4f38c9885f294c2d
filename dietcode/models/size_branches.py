"""Branches of a model's Python on sizes, of which an export keeps the one that the example's sizes take."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import Ranges, simplified
from dietcode.models.importing.conditions import SIGNS, is_more_than_one
from dietcode.models.importing.dimensions import program_sizes, whole_bounds
from dietcode.models.importing.symbols import Symbols, UnknownSizeError
from dietcode.models.own_thread import here
from dietcode.models.sources import at, is_of_libraries
from dietcode.workload.text import one_line

_WITHIN = (__file__, here.__code__.co_filename)
_OTHERWISE = {
    "Equality": "Unequality",
    "Unequality": "Equality",
    "LessThan": "StrictGreaterThan",
    "StrictGreaterThan": "LessThan",
    "GreaterThan": "StrictLessThan",
    "StrictLessThan": "GreaterThan",
}
_MOST = 2**31
_TRIED = 200  # sizes


@dataclass(frozen=True)
class SizeBranch:
    """A truth value of sizes that a model's author asked for.

    Attributes
    ----------
    relation : sympy expression
    taken : bool
        What it was for the example.
    where : str
        As ``file.py:12``.
    """

    relation: Any
    taken: bool
    where: str


@contextmanager
def recorded_branches() -> Iterator[list[SizeBranch]]:
    """Collect the branches on sizes that a model's code takes, not PyTorch's, for as long as this lasts."""
    from torch.fx.experimental.sym_node import SymNode

    found: list[SizeBranch] = []
    own, whole = SymNode.bool_, SymNode.int_

    def bool_(self: Any) -> bool:
        relation, where = self.expr, _asker()
        taken: bool = own(self)
        if where and relation.free_symbols:
            found.append(SizeBranch(relation, taken, where))
        return taken

    def int_(self: Any) -> int:
        """Record a whole number that Python asks for, as ``int(length * 0.5)``: it becomes a constant."""
        from torch.fx.experimental.symbolic_shapes import sympy

        expression, where = self.expr, _asker()
        number: int = whole(self)
        if where and expression.free_symbols:
            found.append(SizeBranch(sympy.Eq(expression, number, evaluate=False), True, where))
        return number

    SymNode.bool_, SymNode.int_ = here(bool_, own), here(int_, whole)
    try:
        yield found
    finally:
        SymNode.bool_, SymNode.int_ = own, whole


def _asker() -> str:
    """Return where a model's code asks whether a relation holds; '' where PyTorch's does."""
    frame: Any = sys._getframe(2)
    import torch

    while frame is not None and frame.f_code.co_filename in (*_WITHIN, torch.__file__):
        frame = frame.f_back
    if frame is None or is_of_libraries(frame.f_code.co_filename):
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def refuse_branches(branches: Sequence[SizeBranch], program: Any, names: Mapping[str, str]) -> None:
    """Refuse a program that has one way alone of a branch of which its ranges have both.

    Equal sizes, and comparisons of sizes with each other, stay in the program as checks of each call.

    Parameters
    ----------
    branches : sequence of SizeBranch
    program : torch.export.ExportedProgram
    names : mapping of str to str
        Names of dimensions by ``input.axis``.

    Raises
    ------
    ModelError
    """
    called: dict[str, str] = {}
    ranges: dict[str, tuple[int, int]] = {}
    for label, size in program_sizes(program):
        for symbol in () if isinstance(size, int) else size.node.expr.free_symbols:
            alone = size.node.expr.is_Symbol
            name = called[symbol.name] = called.get(symbol.name, names.get(label, label) if alone else "")
            low, high = whole_bounds(program.range_constraints.get(symbol))
            ranges[name or symbol.name] = (low, _MOST if high is None else high)
    symbols = Symbols({symbol: name or symbol for symbol, name in called.items()}, program.range_constraints)
    bounds = {one: whole_bounds(program.range_constraints.get(one)) for one in _sizes_of(program)}
    for branch in branches:
        for relation, kind in _parts(branch):
            said = _undecided(relation, kind, symbols, ranges, bounds)
            if said:
                raise ModelError(
                    f"torch.export: a branch on {one_line(said, 120)}{at(branch.where)}, of which the "
                    "program has one way and the ranges have both; allowed: torch.cond, code right for "
                    "both, as n // 2 for int(n / 2), or ranges that decide it, as "
                    'Dim("L", min=2) or 4*Dim("h")'
                )


def _parts(branch: SizeBranch) -> list[tuple[Any, str]]:
    """Return what has to hold for the way that was taken: relations, each with its kind."""
    kind = type(branch.relation).__name__
    if kind == ("And" if branch.taken else "Or"):
        return [
            part
            for one in branch.relation.args
            for part in _parts(SizeBranch(one, branch.taken, branch.where))
        ]
    if kind == "Not":
        return _parts(SizeBranch(branch.relation.args[0], not branch.taken, branch.where))
    return [(branch.relation, kind if branch.taken else _OTHERWISE.get(kind, kind))]


def _sizes_of(program: Any) -> set[Any]:
    """Return PyTorch's symbols of the sizes of inputs."""
    sizes = [size for _, size in program_sizes(program) if not isinstance(size, int)]
    return {symbol for size in sizes for symbol in size.node.expr.free_symbols}


def _differs(relation: Any, bounds: Mapping[Any, tuple[int, int | None]]) -> bool:
    """Whether a relation that extents do not have, as of square roots, is true of some sizes alone.

    The ends of ranges and `_TRIED` sizes between them are tried.
    """
    own = sorted(relation.free_symbols, key=str)
    if not set(own) <= bounds.keys():
        return False  # sizes that follow from values, which are checked
    rng, found = random.Random(0), set()
    for number in range(_TRIED + 2):
        values = {}
        for symbol in own:
            low, high = bounds[symbol]
            high = _MOST if high is None else high
            values[symbol] = (low, high)[number] if number < 2 else rng.randint(low, high)
        found.add(bool(relation.subs(values)))
    return len(found) > 1


def _undecided(
    relation: Any,
    kind: str,
    symbols: Symbols,
    ranges: Ranges,
    bounds: Mapping[Any, tuple[int, int | None]],
) -> str:
    """Return a relation in words where sizes of the ranges break it and no check of the program says so."""
    try:
        left, right = (symbols.extent_of(one) for one in relation.args)
        value = simplified(left - right, ranges)
    except (UnknownSizeError, ValueError):
        return symbols.text(relation) if _differs(relation, bounds) else ""
    low, high = value.bounds(ranges)
    holds = {
        "Equality": (low, high) == (0, 0),
        "Unequality": low > 0 or high < 0,
        "LessThan": high <= 0,
        "StrictLessThan": high < 0,
        "GreaterThan": low >= 0,
        "StrictGreaterThan": low > 0,
    }
    checked = len(value.variables) > 1 and kind != "Unequality" and not is_more_than_one(kind, left, right)
    if holds.get(kind, True) or checked:
        return ""
    first, second = (symbols.text(one) for one in relation.args)
    return f"{first} {SIGNS[type(relation).__name__]} {second}"
