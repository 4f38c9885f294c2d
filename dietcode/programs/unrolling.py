"""Loops over modules and weights: what each round has is written out.

``for layer, h in zip(self.layers, states)`` has as many rounds as there are layers, with ``states[0]`` in the
first of them; ``[head(x) for head in self.heads]`` becomes ``[heads[0](x), heads[1](x)]``.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dietcode.programs import lists
from dietcode.programs.sources import Statics
from dietcode.programs.statements import at, call, constant, is_read_alone


@dataclass
class LoopRound:
    """What the targets of a loop are in one round.

    Attributes
    ----------
    names : dict of str to object
        Those that are modules, weights and numbers.
    assigned : list of (target, expression)
        All others.
    """

    names: dict[str, Any] = field(default_factory=dict)
    assigned: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)


def rounds_of(node: ast.For, statics: Statics) -> list[LoopRound] | None:
    """Return the rounds of a loop over modules or weights; None for any other loop."""
    items = _items(node.iter, statics)
    if items is None:
        return None
    key = (node, hash(tuple(_marks(items))))
    if key not in statics.source.chains:
        found = []
        for one in items:
            own = LoopRound()
            _bind(own, node.target, one, statics)
            found.append(own)
        statics.source.chains[key] = found
    known: list[LoopRound] = statics.source.chains[key]
    return known


def listed(node: ast.ListComp, statics: Statics) -> ast.List | None:
    """Return a comprehension over modules or weights as a list of its items; None for any other."""
    (loop, *others) = node.generators
    if others or loop.ifs or loop.is_async:
        return None
    items = _items(loop.iter, statics)
    if items is None:
        return None
    key = (node, hash(tuple(_marks(items))))
    if key not in statics.source.chains:
        found: list[ast.expr] = []
        for one in items:
            values = dict(_named(loop.target, one, statics))
            found.append(_WrittenOut(values).visit(copy.deepcopy(node.elt, _kept(node.elt))))
        statics.source.chains[key] = ast.fix_missing_locations(at(node, ast.List(found, ast.Load())))
    known: ast.List = statics.source.chains[key]
    return known


def _kept(node: ast.AST) -> dict[int, Any]:
    """Return what a copy of a text keeps: the values of its constants."""
    values = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    return {id(one): one for one in values}


def _marks(items: list[ast.expr]) -> Iterator[int]:
    for one in items:
        for node in ast.walk(one):
            if isinstance(node, ast.Constant):
                yield hash(node.value) if isinstance(node.value, int) else id(node.value)


def _items(node: ast.expr, statics: Statics) -> list[ast.expr] | None:
    """Return each item of what a loop over modules goes over, as an expression."""
    if not isinstance(node, ast.Call):
        known = statics.static_items(node)
        return None if known is None else [constant(one) for one in known]
    function = statics.find(node.func)[1]
    if function is enumerate and node.args:
        inner = _items(node.args[0], statics)
        start = statics.find(node.args[1])[1] if len(node.args) == 2 else 0
        if inner is None or type(start) is not int:
            return None
        numbers = (constant(start + k) for k in range(len(inner)))
        return [_pair(node, [number, one]) for number, one in zip(numbers, inner, strict=True)]
    if function is reversed and len(node.args) == 1:
        inner = _items(node.args[0], statics)
        return None if inner is None else inner[::-1]
    return _zipped(node, statics) if function is zip else None


def _zipped(node: ast.Call, statics: Statics) -> list[ast.expr] | None:
    parts = [_items(one, statics) for one in node.args]
    lengths = [len(one) for one in parts if one is not None]
    if not lengths:
        return None
    many = min(lengths)
    whole: list[list[ast.expr]] = []
    for own, given in zip(parts, node.args, strict=True):
        if own is None and not is_read_alone(given):
            raise statics.source.refusal(given, f"modules beside {ast.unparse(given)}; give it a name before")
        whole.append(_read(given, many) if own is None else own)
    return [_pair(node, [part[k] for part in whole]) for k in range(many)]


def _read(given: ast.expr, many: int) -> list[ast.expr]:
    """Return the items of a list that has as many as there are modules."""
    first = call(given, constant(lists.of_length), given, at(given, ast.Constant(many)))
    bases = [first, *([given] * (many - 1))]
    return [
        at(given, ast.Subscript(base, at(given, ast.Constant(k)), ast.Load())) for k, base in enumerate(bases)
    ]


def _pair(node: ast.AST, items: list[ast.expr]) -> ast.expr:
    return at(node, ast.Tuple(items, ast.Load()))


def _bind(own: LoopRound, target: ast.expr, value: ast.expr, statics: Statics) -> None:
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple):
        if len(target.elts) != len(value.elts):
            raise statics.source.refusal(target, f"{len(target.elts)} names for {len(value.elts)} values")
        for one, item in zip(target.elts, value.elts, strict=True):
            _bind(own, one, item, statics)
        return
    if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
        own.names[target.id] = value.value
        return
    if isinstance(value, ast.Constant | ast.Tuple):
        raise statics.source.refusal(target, "a target of a loop over modules; allowed: names")
    own.assigned.append((target, value))


def _named(target: ast.expr, value: ast.expr, statics: Statics) -> Iterator[tuple[str, ast.expr]]:
    """Return what each name of a comprehension's target stands for."""
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    parts = value.elts if isinstance(value, ast.Tuple) else None
    if not isinstance(target, ast.Tuple) or parts is None or len(parts) != len(target.elts):
        raise statics.source.refusal(target, "a target of a comprehension over modules; allowed: names")
    for one, item in zip(target.elts, parts, strict=True):
        yield from _named(one, item, statics)


class _WrittenOut(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._values.get(node.id, node) if isinstance(node.ctx, ast.Load) else node
