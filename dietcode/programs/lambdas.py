"""The text of a lambda that stands in a file, as a function by def."""

from __future__ import annotations

import ast
import inspect
from types import CodeType
from typing import Any

from dietcode.programs.nested_functions import as_value


def definition_of(function: Any) -> ast.FunctionDef | None:
    """Return a lambda as a function by def; None where its file has several that it may be.

    Raises
    ------
    OSError, TypeError
        There is no file.
    """
    lines, _ = inspect.findsource(function)
    code: CodeType = function.__code__
    found = [
        one
        for one in ast.walk(ast.parse("".join(lines)))
        if isinstance(one, ast.Lambda)
        and _names(one) == code.co_varnames[: len(_names(one))]
        and _is_of(one, code)
    ]
    if len(found) != 1:
        return None
    (own,) = found
    body: list[ast.stmt] = [ast.copy_location(ast.Return(own.body), own.body)]
    made = ast.FunctionDef("lambda_", own.args, body, [])
    return ast.fix_missing_locations(ast.copy_location(made, own))


def _names(node: ast.Lambda) -> tuple[str, ...]:
    given = node.args
    return tuple(one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def _is_of(node: ast.Lambda, code: CodeType) -> bool:
    """Whether the instructions of a function come from a lambda's text."""
    body = node.body
    begin, end = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    places = [
        (line, column)
        for line, _, column, _ in code.co_positions()
        if line is not None and column is not None
    ]
    inside = [begin <= place <= end for place in places if place[1] or place[0] != code.co_firstlineno]
    return bool(inside) and all(inside)


def computed_defaults(node: ast.Lambda) -> list[tuple[ast.arg, ast.expr]]:
    """Return the parameters of a lambda whose defaults are no constants, as ``k=k``, with these."""
    given = node.args
    pairs = list(zip(given.args[len(given.args) - len(given.defaults) :], given.defaults, strict=False))
    is_plain = not given.posonlyargs
    return [(own, value) for own, value in pairs if is_plain and not isinstance(value, ast.Constant)]


def _without_computed(node: ast.Lambda) -> list[ast.keyword]:
    """Take such defaults from a lambda; returns what its value is made with."""
    found, given = [], node.args
    for own, value in computed_defaults(node):
        given.args.remove(own)
        given.kwonlyargs.append(own)
        given.kw_defaults.append(None)
        given.defaults.remove(value)
        found.append(ast.copy_location(ast.keyword(own.arg, value), node))
    return found


def without_lambdas(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function whose lambdas that are values are functions within it; it is changed.

    Those that a `defaultdict` is made of stay.
    """
    made: list[ast.stmt] = []

    class _Named(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            return without_lambdas(node)

        def visit_Call(self, node: ast.Call) -> ast.AST:
            word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            return node if word == "defaultdict" else self.generic_visit(node)

        def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
            name = f"lambda {node.lineno} {node.col_offset}"
            kept = [self.visit(one) for one in _without_computed(node)]
            body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
            own = ast.fix_missing_locations(
                ast.copy_location(ast.FunctionDef(name, node.args, body, []), node)
            )
            made.append(without_lambdas(own))
            return as_value(ast.copy_location(ast.Name(name, ast.Load()), node), kept)

    tree.body = [_Named().visit(one) for one in tree.body]
    tree.body = [*tree.body, *made]
    return tree
