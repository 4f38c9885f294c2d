"""A function's syntax tree with fewer kinds of nodes: what can be said by others is said by them."""

from __future__ import annotations

import ast
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)
_LISTED = ("sum", "min", "max", "list", "sorted", "tuple")  # they use all that a generator gives


def simplified(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function that does the same.

    ``a < f() < c`` becomes ``a < (t := f()) and t < c``, ``a not in b`` becomes ``not a in b``,
    ``a in (1, 2)`` becomes comparisons, ``sum(x for x in y)`` becomes ``sum([x for x in y])``,
    ``x[i] += 1`` becomes ``b = x; k = i; b[k] = b[k] + 1``, and the targets of a comprehension get names
    that nothing else has. New names have a space in them, so that no text has them.
    """
    found = _Simplification().visit(tree)
    assert isinstance(found, ast.FunctionDef)  # as it was
    return ast.fix_missing_locations(found)


class _Simplification(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return self._single(node)
        parts: list[ast.expr] = []
        left = node.left
        for at, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            is_last = at == len(node.ops) - 1
            kept = (
                right if is_last or isinstance(right, ast.Constant) else _named(node, f"middle {at}", right)
            )
            parts.append(self._single(_at(node, ast.Compare(left, [op], [kept]))))
            left = kept if isinstance(kept, ast.Constant) else _load(node, f"middle {at}")
        return _at(node, ast.BoolOp(ast.And(), parts))

    def _single(self, node: ast.Compare) -> ast.expr:
        """Return a comparison of two without ``not in``, and without ``in`` a tuple of the text."""
        (op,), (right,) = node.ops, node.comparators
        if isinstance(op, ast.NotIn):
            inner = self._single(_at(node, ast.Compare(node.left, [ast.In()], [right])))
            return _at(node, ast.UnaryOp(ast.Not(), inner))
        is_of_text = isinstance(right, ast.Tuple | ast.List | ast.Set) and right.elts
        if not isinstance(op, ast.In) or not is_of_text:
            return node
        assert isinstance(right, ast.Tuple | ast.List | ast.Set)  # mypy does not see it through the name
        if not all(isinstance(one, ast.Constant) for one in right.elts):
            return node
        first = _named(node, "sought", node.left)
        sides = [first, *(_load(node, "sought") for _ in right.elts[1:])]
        parts: list[ast.expr] = [
            _at(node, ast.Compare(side, [ast.Eq()], [one]))
            for side, one in zip(sides, right.elts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else _at(node, ast.BoolOp(ast.Or(), parts))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_whole = isinstance(node.func, ast.Name) and node.func.id in _LISTED
        if is_whole and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            given = node.args[0]
            node.args = [_renamed(_at(given, ast.ListComp(given.elt, given.generators)))]
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        return _renamed(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        target = node.target
        if isinstance(target, ast.Name):
            return node
        found: list[ast.stmt] = [_assigned(node, "base", target.value)]
        base = _load(node, "base")
        if isinstance(target, ast.Attribute):
            read: ast.expr = ast.Attribute(base, target.attr, ast.Load())
            write: ast.expr = ast.Attribute(_load(node, "base"), target.attr, ast.Store())
        else:
            if isinstance(target.slice, ast.Slice):
                return node
            found.append(_assigned(node, "place", target.slice))
            read = ast.Subscript(base, _load(node, "place"), ast.Load())
            write = ast.Subscript(_load(node, "base"), _load(node, "place"), ast.Store())
        changed = _assigned(node, "changed", _at(node, read))
        assert isinstance(changed, ast.Assign)  # it is one
        name = _at(node, ast.Name(_name(node, "changed"), ast.Store()))
        more = _at(node, ast.AugAssign(name, node.op, node.value))
        last = _at(node, ast.Assign([_at(node, write)], _load(node, "changed")))
        return [*found, changed, more, last]


def _at(node: ast.AST, new: _Node) -> _Node:
    return ast.copy_location(new, node)


def _name(node: ast.AST, word: str) -> str:
    return f"{word} {getattr(node, 'lineno', 0)} {getattr(node, 'col_offset', 0)}"


def _load(node: ast.AST, word: str) -> ast.expr:
    return _at(node, ast.Name(_name(node, word), ast.Load()))


def _named(node: ast.AST, word: str, value: ast.expr) -> ast.expr:
    target = _at(node, ast.Name(_name(node, word), ast.Store()))
    return _at(value, ast.NamedExpr(target, value))


def _assigned(node: ast.AST, word: str, value: ast.expr) -> ast.stmt:
    return _at(node, ast.Assign([_at(node, ast.Name(_name(node, word), ast.Store()))], value))


def _renamed(node: ast.ListComp) -> ast.ListComp:
    """Give the targets of a comprehension names of their own: it has a scope of its own."""
    names = {
        one.id: f"{one.id} {node.lineno} {node.col_offset}"
        for loop in node.generators
        for one in ast.walk(loop.target)
        if isinstance(one, ast.Name) and " " not in one.id
    }
    (first, *_) = node.generators
    source = first.iter
    first.iter = _at(source, ast.Constant(None))  # it is evaluated outside
    _Renaming(names).generic_visit(node)
    first.iter = source
    return node


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return _at(node, ast.Name(self._names.get(node.id, node.id), node.ctx))
