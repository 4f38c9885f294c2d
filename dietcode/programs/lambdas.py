"""The text of a lambda that stands in a file, as a function by def."""

from __future__ import annotations

import ast
import inspect
from types import CodeType
from typing import Any


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
