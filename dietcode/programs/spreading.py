"""Calls with ``*``, and functions with ``*args``: which arguments they have is written out.

``f(*pair)`` becomes ``f(pair[0], pair[1])`` as samples show how many there are, and ``f(a, b)`` of a function
``f(*xs)`` becomes ``f(xs=(a, b))``; ``f(*items)`` of one becomes ``f(xs=[*items])``. ``f(a=1)`` of a function
``f(**options)`` becomes ``f(options={"a": 1})``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from dietcode.programs import dictionaries, lists
from dietcode.programs.sources import FunctionSource
from dietcode.programs.statements import READING, at, bound, call, constant, is_read_alone, load


def has_stars(node: ast.Call) -> bool:
    """Whether a call has ``*`` among its arguments."""
    return any(isinstance(one, ast.Starred) for one in node.args)


def is_made_alone(node: ast.expr) -> bool:
    """Whether an expression makes a dict of what it reads, and does nothing else."""
    made = (*READING, ast.Call, ast.List, ast.Tuple)
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return all(isinstance(one, made) for one in ast.walk(node)) and all(
        isinstance(one.func, ast.Constant) for one in calls
    )


def spread(node: ast.Call, num_plain: int, rest: str, length_of: Callable[[ast.expr], int]) -> ast.Call:
    """Return a call whose arguments are written out.

    Parameters
    ----------
    node : Call
    num_plain : int
        How many arguments by position the function has before its ``*args``.
    rest : str
        The name of these; empty where it has none.
    length_of : callable
        How many items samples show what is behind a ``*`` to have.
    """
    args: list[ast.expr] = []
    waiting = list(node.args)
    while waiting and not (rest and len(args) >= num_plain):
        one = waiting.pop(0)
        if not isinstance(one, ast.Starred):
            args.append(one)
            continue
        many = length_of(one.value)
        if rest and len(args) + many > num_plain:
            taken = num_plain - len(args)
            args += _items(one.value, range(taken), None)
            cut = ast.Slice(at(one, ast.Constant(taken)), None, None)
            behind = one.value if not taken else at(one, ast.Subscript(one.value, cut, ast.Load()))
            waiting.insert(0, at(one, ast.Starred(behind, ast.Load())))
            break
        args += _items(one.value, range(many), many)
    named = list(node.keywords)
    if rest:
        is_any = any(isinstance(one, ast.Starred) for one in waiting)
        given: ast.expr = ast.List(waiting, ast.Load()) if is_any else ast.Tuple(waiting, ast.Load())
        named.append(at(node, ast.keyword(rest, at(node, given))))
    return ast.fix_missing_locations(at(node, ast.Call(node.func, args, named)))


def lacks_rest(node: ast.Call, source: FunctionSource) -> bool:
    """Whether a call does not say yet what ``*args`` and ``**kwargs`` of a function are."""
    names = {one.arg for one in node.keywords}
    return any(one and one not in names for one in (source.rest, source.named_rest))


def names_written(node: ast.Call, names: Sequence[Sequence[str]]) -> ast.Call:
    """Return a call whose ``**options`` are ``name=options["name"]``, of each of them those names."""
    waiting = list(names)
    found: list[ast.keyword] = []
    for number, one in enumerate(node.keywords):
        if one.arg is not None:
            found.append(one)
            continue
        is_name, word = is_read_alone(one.value), f"options {number}"
        for k, name in enumerate(waiting.pop(0)):
            base = one.value if is_name else load(node, word) if k else bound(node, word, one.value)
            item = ast.Subscript(base, at(one.value, ast.Constant(name)), ast.Load())
            found.append(at(one.value, ast.keyword(name, at(one.value, item))))
    return at(node, ast.Call(node.func, node.args, found))


def with_named_rest(node: ast.Call, parameters: Sequence[str], rest: str) -> ast.Call:
    """Return a call that gives ``**kwargs`` as a dict of the names that a function has no parameter for."""
    own = [one for one in node.keywords if one.arg in parameters]
    rows: list[ast.expr] = [
        at(node, ast.Tuple([at(node, ast.Constant(one.arg)), one.value], ast.Load()))
        for one in node.keywords
        if one.arg not in parameters
    ]
    made = call(node, constant(dictionaries.made), at(node, ast.List(rows, ast.Load())))
    named = [*own, at(node, ast.keyword(rest, made))]
    return ast.fix_missing_locations(at(node, ast.Call(node.func, node.args, named)))


def _items(base: ast.expr, numbers: Sequence[int], many: int | None) -> list[ast.expr]:
    """Return items of a list or a tuple, which has as many as there are, where that is said."""
    found: list[ast.expr] = []
    for k in numbers:
        own = base
        if k == 0 and many is not None:
            own = call(base, constant(lists.of_length), base, at(base, ast.Constant(many)))
        found.append(at(base, ast.Subscript(own, at(base, ast.Constant(k)), ast.Load())))
    return found
