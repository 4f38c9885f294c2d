"""Loops over generator expressions, ``map`` and ``filter``: each item is computed when it is asked for.

``for y in (f(x) for x in xs if g(x)): …`` becomes ``for x in xs: if not g(x): continue; y = f(x); …``, so
that what a round does, and what it raises, comes in Python's order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from dietcode.programs.generators import as_list
from dietcode.programs.made_lists import is_mapped, mapped, renamed
from dietcode.programs.statements import Left, assigned, at, load, name_of

_StandsFor = Callable[[ast.expr], object]


def as_generator(node: ast.expr, stands_for: _StandsFor) -> ast.GeneratorExp | None:
    """Return what computes its items one by one as a generator expression; None for anything else."""
    if isinstance(node, ast.GeneratorExp):
        return node
    word = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    if not is_mapped(node, word):
        return None
    assert isinstance(node, ast.Call)  # as `is_mapped` says
    made = mapped(node, word, stands_for)
    return at(node, ast.GeneratorExp(made.elt, made.generators))


def lazily_looped(node: ast.For, stands_for: _StandsFor) -> list[ast.stmt] | None:
    """Return a loop over a generator, or ``enumerate`` of one, as loops over what that goes over.

    None for any other loop.

    Parameters
    ----------
    node : For
    stands_for : callable
        What an expression stands for that is not local.
    """
    begin: list[ast.stmt] = []
    own = as_generator(node.iter, stands_for)
    counted = _counted(node.iter, stands_for) if own is None else None
    if counted is not None:
        own, start = counted
        begin = [assigned(node, "number", start)]
    if own is None or any(loop.is_async for loop in own.generators):
        return None
    given = renamed(at(own, ast.ListComp(own.elt, own.generators)))
    is_nested = len(given.generators) > 1
    body = node.body
    if is_nested:
        begin.append(assigned(node, "left", at(node, ast.Constant(False))))
        body = Left(assigned(node, "left", at(node, ast.Constant(True)))).in_body(body)
    body = [*_item(node, given.elt, is_counted=counted is not None), *body]
    for depth in range(len(given.generators) - 1, -1, -1):
        loop = given.generators[depth]
        tests: list[ast.stmt] = [
            at(one, ast.If(at(one, ast.UnaryOp(ast.Not(), one)), [at(one, ast.Continue())], []))
            for one in loop.ifs
        ]
        body = [at(node, ast.For(loop.target, loop.iter, [*tests, *body], []))]
        if depth:
            body.append(at(node, ast.If(load(node, "left"), [at(node, ast.Break())], [])))
    (whole,) = body
    assert isinstance(whole, ast.For)  # the outermost loop
    if is_nested and node.orelse:
        test = at(node, ast.UnaryOp(ast.Not(), load(node, "left")))
        return [*begin, whole, at(node, ast.If(test, node.orelse, []))]
    whole.orelse = node.orelse
    return [*begin, whole]


def _counted(node: ast.expr, stands_for: _StandsFor) -> tuple[ast.GeneratorExp, ast.expr] | None:
    """Return the generator and the first number of ``enumerate``; None for anything else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "enumerate":
        return None
    own = as_generator(node.args[0], stands_for) if node.args else None
    starts = [*node.args[1:], *(one.value for one in node.keywords if one.arg == "start")]
    if own is None or len(starts) > 1 or len(node.args) + len(node.keywords) > 1 + len(starts):
        return None
    return own, starts[0] if starts else at(node, ast.Constant(0))


def _item(node: ast.For, value: ast.expr, is_counted: bool) -> list[ast.stmt]:
    """Return the statements that give a loop's target its item."""
    if not is_counted:
        return [at(node, ast.Assign([node.target], value))]
    pair = at(node, ast.Tuple([load(node, "number"), load(node, "counted")], ast.Load()))
    number = at(node, ast.Name(name_of(node, "number"), ast.Store()))
    return [
        assigned(node, "counted", value),
        at(node, ast.Assign([node.target], pair)),
        at(node, ast.AugAssign(number, ast.Add(), at(node, ast.Constant(1)))),
    ]


def without_generators(node: ast.ListComp, stands_for: _StandsFor) -> ast.ListComp:
    """Return a comprehension that goes over no generator, but over what that goes over."""
    found: list[ast.comprehension] = []
    targets = {one.id for loop in node.generators for one in _names(loop.target)}
    for loop in node.generators:
        own = None if loop.is_async else as_generator(loop.iter, stands_for)
        if own is not None and targets & {one.id for one in _names(own)}:  # which may be another variable
            loop.iter, own = as_list(own), None
        if own is None:
            found.append(loop)
            continue
        inner = renamed(at(own, ast.ListComp(own.elt, own.generators)))
        one = at(own, ast.Tuple([inner.elt], ast.Load()))
        found += [*inner.generators, ast.comprehension(loop.target, one, loop.ifs, 0)]
    node.generators = found
    return node


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]
