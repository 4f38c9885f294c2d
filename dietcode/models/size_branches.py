"""Branches of a model's Python on sizes, of which an export keeps the one that the example's sizes take."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent, Ranges, simplified
from dietcode.models.importing.conditions import SIGNS, is_more_than_one
from dietcode.models.importing.dimensions import derived_bounds, derived_names, program_sizes, whole_bounds
from dietcode.models.importing.symbols import Symbols, UnknownSizeError
from dietcode.models.own_thread import here
from dietcode.models.size_parts import split
from dietcode.models.size_types import sizes_as_numbers
from dietcode.models.sources import asking_frame, at, place_of
from dietcode.workload.text import one_line

_WITHIN = (__file__, here.__code__.co_filename, split.__code__.co_filename)
_OTHERWISE = {
    "Equality": "Unequality",
    "Unequality": "Equality",
    "LessThan": "StrictGreaterThan",
    "StrictGreaterThan": "LessThan",
    "GreaterThan": "StrictLessThan",
    "StrictLessThan": "GreaterThan",
}
_TEXTS = "allowed: in messages that are printed, logged or raised where they are written"
# By the package that has the branch, what its users can choose instead.
_OF_LIBRARIES = {"transformers": ', or attn_implementation="eager" where the model is made'}
_MOST = 2**31
_TRIED = 200  # sizes
_ALL = 8192  # sizes of a range that are tried one by one


@dataclass(frozen=True)
class SizeBranch:
    """A truth value of sizes that a model's author asked for.

    Attributes
    ----------
    relation : sympy expression
    taken : bool
        What it was for the example.
    where : str
        As ``folder/file.py:12``.
    is_constant : bool
        Whether it says that a size is the example's, which Python got as a number of its own.
    is_text : bool
        Whether a text of a size was asked for, which is that of the example's.
    """

    relation: Any
    taken: bool
    where: str
    is_constant: bool = False
    is_text: bool = False


@contextmanager
def recorded_branches(module: Any, found: list[SizeBranch]) -> Iterator[None]:
    """Add the branches on sizes that a model's code takes, not PyTorch's, for as long as this lasts."""
    from torch.fx.experimental.sym_node import SymNode

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
            equal = sympy.Eq(expression, number, evaluate=False)
            found.append(SizeBranch(equal, True, where, is_constant=True))
        return number

    def text_of(node: Any, where: str) -> str:
        """Record a text of a size, as a key of a table or a part of a name: it becomes a constant."""
        if node.hint is None:
            raise ModelError(f"torch.export: a text of a size that depends on values{at(where)}; {_TEXTS}")
        from torch.fx.experimental.symbolic_shapes import sympy

        found.append(SizeBranch(sympy.Eq(node.expr, node.hint, evaluate=False), True, where, is_text=True))
        return str(node.hint)

    SymNode.bool_, SymNode.int_ = here(bool_, own), here(int_, whole)
    try:
        with sizes_as_numbers(module, text_of):
            yield
    finally:
        SymNode.bool_, SymNode.int_ = own, whole


def _asker() -> str:
    """Return where a model's code asks whether a relation holds; '' where PyTorch's does."""
    import torch

    frame = asking_frame(sys._getframe(2), (*_WITHIN, torch.__file__))
    return "" if frame is None else place_of(frame)


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
    called = derived_names(program, names)
    ranges: dict[str, tuple[int, int]] = {}
    bounds: dict[Any, tuple[int, int | None]] = {}
    shape_env: Any = None
    for label, size in program_sizes(program):
        for symbol in () if isinstance(size, int) else size.node.expr.free_symbols:
            shape_env, alone = size.node.shape_env, size.node.expr.is_Symbol
            name = called[symbol.name] = called.get(symbol.name) or (names.get(label, label) if alone else "")
            # What a branch narrowed h to is no range of its Dim, which that of 2*h still says.
            derived = derived_bounds(program.range_constraints, symbol)
            low, high = bounds[symbol] = (
                derived[0] if derived else whole_bounds(program.range_constraints.get(symbol))
            )
            ranges[name or symbol.name] = (low, _MOST if high is None else high)
    symbols = Symbols({symbol: name or symbol for symbol, name in called.items()}, program.range_constraints)
    for branch in branches:
        # An axis may have got its expression, as 2*h, after the branch.
        own = branch.relation if shape_env is None else shape_env.replace(branch.relation)
        for relation, kind in _parts(replace(branch, relation=own)):
            said = _undecided(relation, kind, symbols, ranges, bounds)
            if said and branch.is_text:
                size = one_line(symbols.text(relation.args[0]), 120)
                raise ModelError(
                    f"torch.export: a text of {size}{at(branch.where)}, which the program has for the "
                    f"example's sizes alone; {_TEXTS}"
                )
            if said:
                raise ModelError(
                    f"torch.export: a branch on {one_line(said, 120)}{at(branch.where)}, of which the "
                    "program has one way and the ranges have both; allowed: torch.cond, code right for "
                    "both, as n // 2 for int(n / 2), or ranges that decide it, as "
                    f'Dim("L", min=2) or 4*Dim("h"){_OF_LIBRARIES.get(branch.where.partition("/")[0], "")}'
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


def _least_and_most(value: Extent, ranges: Ranges) -> tuple[int, int, bool]:
    """Return bounds of an extent, and whether it is never 0: exact ones of one dimension of a short range."""
    low, high = value.bounds(ranges)
    names = list(value.variables)
    if len(names) != 1 or low > 0 or high < 0:
        return low, high, low > 0 or high < 0
    least, most = ranges[names[0]]
    if most - least > _ALL:
        return low, high, False
    found = {value.evaluate({names[0]: number}) for number in range(least, most + 1)}
    return min(found), max(found), 0 not in found


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
    low, high, is_other = _least_and_most(value, ranges)
    holds = {
        "Equality": (low, high) == (0, 0),
        "Unequality": is_other,
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
