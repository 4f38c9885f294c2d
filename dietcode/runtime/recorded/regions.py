"""Regions: tensor code of a unit that one call records, and the unit rewritten to call it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from dietcode.runtime.recorded.units import SourceUnit, compiled, placeholder

_NAME = "__dietcode_region__"


@dataclass(frozen=True)
class SourceRegion:
    """Straight-line tensor code: statements that follow each other, or one expression.

    Nodes are named by their positions in the unit.

    Attributes
    ----------
    statements : tuple of int
        Assignments to plain names, the last of which may be a ``return``; without any it is an expression.
    hoisted : tuple of int
        Expressions of the statement behind them that belong to it too; or the expression alone.
    leaves : tuple of int
        Expressions that Python evaluates, in order: what a call of the region is given.
    outputs : tuple of str
        Names that are read behind it.
    """

    statements: tuple[int, ...]
    hoisted: tuple[int, ...]
    leaves: tuple[int, ...]
    outputs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "statements": list(self.statements),
            "hoisted": list(self.hoisted),
            "leaves": list(self.leaves),
            "outputs": list(self.outputs),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceRegion:
        """Return what `to_json` wrote."""
        return cls(
            statements=tuple(map(int, data["statements"])),
            hoisted=tuple(map(int, data["hoisted"])),
            leaves=tuple(map(int, data["leaves"])),
            outputs=tuple(map(str, data["outputs"])),
        )

    @property
    def is_single(self) -> bool:
        """Whether it is one statement or expression."""
        return len(self.statements) + len(self.hoisted) == 1

    def first_line(self, unit: SourceUnit) -> int:
        """Return the line at which it begins."""
        first = unit.nodes[(self.statements or self.hoisted)[0]]
        return int(getattr(first, "lineno", 0))


@dataclass
class UnitParts:
    """What is rewritten of a unit.

    Attributes
    ----------
    regions : list of SourceRegion
    concurrent : list of int
        Calls of `dietcode.concurrent`.
    stored : list of int
        Attributes that each instance has for itself while it waits, where they are set.
    instances : list of int
        Calls of `isinstance` with tensors.
    """

    regions: list[SourceRegion] = field(default_factory=list)
    concurrent: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    instances: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.regions or self.concurrent or self.stored or self.instances)


def parameters_of(unit: SourceUnit, region: SourceRegion) -> list[str]:
    """Return the name of each leaf: its own, where it is a variable."""
    names = []
    for at, leaf in enumerate(region.leaves):
        node = unit.nodes[leaf]
        names.append(node.id if isinstance(node, ast.Name) else f"_dietcode_{at}")
    return names


class _Copying:
    """Copies a tree with other expressions or statements in the place of some.

    Parameters
    ----------
    others : mapping of AST to callable
        Each is called with this, and returns a node, or a list of statements.
    """

    def __init__(self, others: Mapping[ast.AST, Callable[[_Copying], Any]]) -> None:
        self._others = others

    def copied(self, node: ast.AST) -> Any:
        """Return a node, or what is in its place."""
        make = self._others.get(node)
        return self._parts_copied(node) if make is None else make(self)

    def _parts_copied(self, node: ast.AST) -> Any:
        fields: dict[str, Any] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                fields[name] = []
                for one in value:
                    new = self.copied(one) if isinstance(one, ast.AST) else one
                    fields[name] += new if isinstance(new, list) else [new]
            else:
                fields[name] = self.copied(value) if isinstance(value, ast.AST) else value
        return ast.copy_location(type(node)(**fields), node)


def region_function(
    unit: SourceUnit, region: SourceRegion, flags: int, names: dict[str, Any]
) -> Callable[..., Any]:
    """Return a region as a function of its leaves.

    Parameters
    ----------
    unit : SourceUnit
    region : SourceRegion
    flags : int
        Of code of the file.
    names : dict
        The file's global variables.
    """
    parameters = parameters_of(unit, region)
    nodes = [unit.nodes[leaf] for leaf in region.leaves]
    copying = _Copying(
        {node: functools.partial(_named, name, node) for node, name in zip(nodes, parameters, strict=True)}
    )
    body = [copying.copied(unit.nodes[one]) for one in region.statements]
    if not body or not isinstance(body[-1], ast.Return):
        values: list[Any] = [ast.Name(name, ast.Load()) for name in region.outputs]
        values += [copying.copied(unit.nodes[one]) for one in region.hoisted]
        body.append(ast.Return(values[0] if len(values) == 1 else ast.Tuple(values, ast.Load())))
    made: Any = ast.parse(f"def {_NAME}({', '.join(parameters)}): pass").body[0]
    made.body = body
    first = unit.nodes[(region.statements or region.hoisted)[0]]
    made = ast.copy_location(made, first)
    code = _code_of(unit, made, flags)
    return FunctionType(code, names, unit.qualname)


def _code_of(unit: SourceUnit, made: Any, flags: int) -> Any:
    around = SourceUnit(unit.file, ".".join([*unit.classes, _NAME]), made, unit.classes, "", [])
    return compiled(around, made, flags)


def rewritten(unit: SourceUnit, parts: UnitParts) -> Any:
    """Return the tree of a unit in which regions are calls.

    Its placeholders are those of the functions that record the regions, in order, then that of what
    `dietcode.concurrent` becomes, of what notes an attribute that is set, and of what `isinstance` becomes.
    """
    others: dict[ast.AST, Callable[[_Copying], Any]] = {}
    many = len(parts.regions)
    for at, region in enumerate(parts.regions):
        _replace(unit, region, at, others)
    for number in parts.concurrent:
        node: Any = unit.nodes[number]
        if all(_is_lazy(one) for one in node.args) and not node.keywords:
            others[node] = functools.partial(_lazily, node, many)
    for number in parts.stored:
        others[unit.nodes[number]] = functools.partial(_stored, unit.nodes[number], many + 1)
    for number in parts.instances:
        others[unit.nodes[number]] = functools.partial(_instance, unit.nodes[number], many + 2)
    return _Copying(others).copied(unit.node)


def _instance(node: Any, known: int, copying: _Copying) -> Any:
    args = [copying.copied(one) for one in node.args]
    return ast.copy_location(ast.Call(placeholder(known), args, []), node)


def _stored(node: Any, note: int, copying: _Copying) -> Any:
    """Return an attribute that is set, whose object and name are noted before."""
    call = ast.Call(placeholder(note), [copying.copied(node.value), ast.Constant(node.attr)], [])
    return ast.copy_location(ast.Attribute(ast.copy_location(call, node), node.attr, node.ctx), node)


def _replace(
    unit: SourceUnit, region: SourceRegion, at: int, others: dict[ast.AST, Callable[[_Copying], Any]]
) -> None:
    first = unit.nodes[(region.statements or region.hoisted)[0]]
    last = unit.nodes[region.statements[-1]] if region.statements else None

    def called(copying: _Copying) -> Any:
        given = [copying.copied(unit.nodes[one]) for one in region.leaves]
        return ast.copy_location(ast.Call(placeholder(at), given, []), first)

    if last is None:
        others[first] = called
        return
    for one in region.statements:
        others[unit.nodes[one]] = lambda copying: []
    if isinstance(last, ast.Return):
        others[first] = lambda copying: ast.copy_location(ast.Return(called(copying)), first)
        return
    temporary = [f"_dietcode_{at}_{k}" for k in range(len(region.hoisted))]
    targets: list[Any] = [ast.Name(name, ast.Store()) for name in (*region.outputs, *temporary)]
    target = targets[0] if len(targets) == 1 else ast.Tuple(targets, ast.Store())
    others[first] = lambda copying: ast.copy_location(ast.Assign([target], called(copying)), first)
    for name, number in zip(temporary, region.hoisted, strict=True):
        node = unit.nodes[number]
        others[node] = functools.partial(_named, name, node)


def _named(name: str, node: ast.AST, copying: _Copying) -> Any:
    return ast.copy_location(ast.Name(name, ast.Load()), node)


def _is_lazy(node: ast.expr) -> bool:
    """Whether an argument of `dietcode.concurrent` may be evaluated later."""
    binds = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Starred)
    return not any(isinstance(one, binds) for one in ast.walk(node))


def _lazily(node: ast.Call, lazily: int, copying: _Copying) -> Any:
    """Return a call that gets functions and their arguments in the place of what they return."""
    pairs: list[ast.expr] = []
    for one in node.args:
        new = copying.copied(one)
        is_plain = isinstance(one, ast.Call) and new is not None and isinstance(new, ast.Call)
        if is_plain and not new.keywords and not any(_calls(arg) for arg in (new.func, *new.args)):
            function, arguments = new.func, ast.Tuple(new.args, ast.Load())
        else:
            none = ast.arguments([], [], None, [], [], None, [])
            function, arguments = ast.copy_location(ast.Lambda(none, new), node), ast.Tuple([], ast.Load())
        pairs.append(ast.Tuple([function, ast.copy_location(arguments, node)], ast.Load()))
    return ast.copy_location(ast.Call(placeholder(lazily), pairs, []), node)


def _calls(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Call | ast.Lambda | ast.comprehension) for one in ast.walk(node))
