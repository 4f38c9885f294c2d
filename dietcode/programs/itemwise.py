"""Functions of ``itertools``, ``operator`` and ``math``, and methods of classes, in fewer words."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

from dietcode.programs import dictionaries, integers, lists
from dietcode.programs.statements import at, bound, call, constant, load

_OF_METHODS = type(str.lower)


def of_method(node: ast.Call, function: Any) -> ast.expr | None:
    """Return ``str.lower(x)`` as ``x.lower()``; None for all else."""
    is_of_class = isinstance(function, _OF_METHODS) and bool(node.args)
    if not is_of_class or getattr(function, "__objclass__", None) not in (str, list, dict, set):
        return None
    named = at(node, ast.Attribute(node.args[0], function.__name__, ast.Load()))
    return at(node, ast.Call(named, node.args[1:], node.keywords))


def _one(node: ast.AST, name: str = "one") -> ast.expr:
    return at(node, ast.Name(name, ast.Load()))


def _comprehension(
    node: ast.AST, value: ast.expr, target: ast.expr, items: ast.expr, tests: list[ast.expr]
) -> ast.expr:
    return at(node, ast.ListComp(value, [ast.comprehension(target, items, tests, 0)]))


def _target(node: ast.AST, *names: str) -> ast.expr:
    found: list[ast.expr] = [at(node, ast.Name(name, ast.Store())) for name in names]
    return found[0] if len(found) == 1 else at(node, ast.Tuple(found, ast.Store()))


def _starmap(node: ast.Call) -> ast.expr | None:
    """Return ``[f(a, b) for a, b in items]``, with the text of a lambda written out."""
    if len(node.args) != 2 or node.keywords:
        return None
    function, items = node.args
    if isinstance(function, ast.Lambda):
        given = function.args
        if given.defaults or given.vararg or given.kwonlyargs or len(given.args) < 2:
            return None
        return _comprehension(node, function.body, _target(node, *(x.arg for x in given.args)), items, [])
    starred = at(node, ast.Starred(_one(node), ast.Load()))
    return _comprehension(node, call(node, function, starred), _target(node, "one"), items, [])


def _compress(node: ast.Call) -> ast.expr | None:
    """Return ``[one for one, test in zip(items, tests) if test]``."""
    if len(node.args) != 2 or node.keywords:
        return None
    pairs = call(node, at(node, ast.Name("zip", ast.Load())), *node.args)
    return _comprehension(node, _one(node), _target(node, "one", "test"), pairs, [_one(node, "test")])


def _left_by_filter(node: ast.Call) -> ast.expr | None:
    """Return ``[one for one in items if not f(one)]``."""
    if len(node.args) != 2 or node.keywords:
        return None
    function, items = node.args
    name, test = "one", _one(node)
    if isinstance(function, ast.Lambda):
        if len(function.args.args) != 1 or function.args.defaults:
            return None
        name, test = function.args.args[0].arg, function.body
    elif not (isinstance(function, ast.Constant) and function.value is None):
        test = call(node, function, test)
    is_not = at(node, ast.UnaryOp(ast.Not(), test))
    return _comprehension(node, _one(node, name), _target(node, name), items, [is_not])


def cycled(node: ast.Call, stands_for: Callable[[ast.expr], object]) -> ast.expr | None:
    """Return ``islice(cycle(items), n)`` as a list; None for all else."""
    if len(node.args) != 2 or node.keywords:
        return None
    given = node.args[0]
    is_cycle = isinstance(given, ast.Call) and stands_for(given.func) is itertools.cycle
    if not is_cycle or not isinstance(given, ast.Call) or len(given.args) != 1:
        return None
    return call(node, constant(lists.cycled), call(given, "list", given.args[0]), node.args[1])


def _from_keys(node: ast.Call) -> ast.expr | None:
    """Return ``dict.fromkeys(keys, value)`` as a dict of pairs; the value is one for all keys."""
    if not 1 <= len(node.args) <= 2 or node.keywords:
        return None
    none: ast.expr = at(node, ast.Constant(None))
    keys, value = (*node.args, none)[:2]
    items = at(node, ast.List([at(keys, ast.Starred(keys, ast.Load()))], ast.Load()))
    begin = [bound(node, "items", items), bound(node, "value", value)]
    pair = at(node, ast.Tuple([_one(node), load(node, "value")], ast.Load()))
    rows = _comprehension(node, pair, _target(node, "one"), load(node, "items"), [])
    whole = at(node, ast.Tuple([*begin, call(node, constant(dictionaries.made), rows)], ast.Load()))
    return at(node, ast.Subscript(whole, at(node, ast.Constant(2)), ast.Load()))


def _compared(op: ast.cmpop) -> Callable[[ast.Call], ast.expr | None]:
    def rule(node: ast.Call) -> ast.expr | None:
        if node.keywords or len(node.args) != 2:
            return None
        return at(node, ast.Compare(node.args[0], [op], [node.args[1]]))

    return rule


def _unary(op: ast.unaryop) -> Callable[[ast.Call], ast.expr | None]:
    def rule(node: ast.Call) -> ast.expr | None:
        return None if node.keywords or len(node.args) != 1 else at(node, ast.UnaryOp(op, node.args[0]))

    return rule


def _scaled(factor: float) -> Callable[[ast.Call], ast.expr | None]:
    """Return the rule of a function that multiplies, as ``math.radians``."""

    def rule(node: ast.Call) -> ast.expr | None:
        if node.keywords or len(node.args) != 1:
            return None
        own = call(node, "float", node.args[0])
        return at(node, ast.BinOp(own, ast.Mult(), at(node, ast.Constant(factor))))

    return rule


def _logarithm(node: ast.Call) -> ast.expr | None:
    """Return ``math.log(x, base)`` as a quotient, as Python computes it."""
    if node.keywords or len(node.args) != 2:
        return None
    sides = [call(node, constant(math.log), one) for one in node.args]
    return at(node, ast.BinOp(sides[0], ast.Div(), sides[1]))


def _truncated(node: ast.Call) -> ast.expr | None:
    return None if node.keywords or len(node.args) != 1 else call(node, "int", node.args[0])


def _power_of_three(node: ast.Call) -> ast.expr | None:
    if node.keywords or len(node.args) != 3:
        return None
    return call(node, constant(integers.power_within), *node.args)


def _magnitude(node: ast.Call) -> ast.expr | None:
    return call(node, "abs", call(node, "float", *node.args)) if len(node.args) == 1 else None


def _is_nan(node: ast.Call) -> ast.expr | None:
    if len(node.args) != 1:
        return None
    return at(node, ast.Compare(bound(node, "number", node.args[0]), [ast.NotEq()], [load(node, "number")]))


def _is_infinite(node: ast.Call) -> ast.expr | None:
    if len(node.args) != 1:
        return None
    size = call(node, "abs", node.args[0])
    return at(node, ast.Compare(size, [ast.Eq()], [at(node, ast.Constant(math.inf))]))


def _is_finite(node: ast.Call) -> ast.expr | None:
    if len(node.args) != 1:
        return None
    size = call(node, "abs", node.args[0])
    return at(node, ast.Compare(size, [ast.Lt()], [at(node, ast.Constant(math.inf))]))


RULES: tuple[tuple[Any, Callable[[ast.Call], ast.expr | None]], ...] = (
    (itertools.starmap, _starmap),
    (itertools.compress, _compress),
    (itertools.filterfalse, _left_by_filter),
    (dict.fromkeys, _from_keys),
    (operator.neg, _unary(ast.USub())),
    (operator.not_, _unary(ast.Not())),
    (operator.lt, _compared(ast.Lt())),
    (operator.le, _compared(ast.LtE())),
    (operator.gt, _compared(ast.Gt())),
    (operator.ge, _compared(ast.GtE())),
    (operator.eq, _compared(ast.Eq())),
    (operator.ne, _compared(ast.NotEq())),
    (math.fabs, _magnitude),
    (math.isnan, _is_nan),
    (math.isinf, _is_infinite),
    (math.isfinite, _is_finite),
    (math.radians, _scaled(math.pi / 180)),
    (math.degrees, _scaled(180 / math.pi)),
    (math.log, _logarithm),
    (math.trunc, _truncated),
)
OF_POWERS = _power_of_three
