"""Statements of a function's text said by fewer kinds: ``with``, ``match``, loops with ``else``, ``*rest``.

New names have a space in them, so that no text has them.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Node = TypeVar("_Node", bound=ast.AST)
_PLAIN_CONTEXTS = ("no_grad", "inference_mode", "nullcontext")
_SELVES = (
    "bool",
    "float",
    "int",
    "str",
    "list",
    "tuple",
)  # whose only positional pattern is the value itself

READING = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Load)

Outside = Callable[[str], tuple[bool, Any]]
"""Whether a name that is not local stands for something, and that."""


def at(node: ast.AST, new: _Node) -> _Node:
    """Return a new node with the line of an old one."""
    return ast.copy_location(new, node)


def name_of(node: ast.AST, word: str) -> str:
    """Return a name that no other node's has."""
    return f"{word} {getattr(node, 'lineno', 0)} {getattr(node, 'col_offset', 0)}"


def load(node: ast.AST, word: str) -> ast.expr:
    """Return a read of a name that `assigned` or `bound` writes."""
    return at(node, ast.Name(name_of(node, word), ast.Load()))


def bound(node: ast.AST, word: str, value: ast.expr) -> ast.expr:
    """Return ``(name := value)``."""
    target = at(node, ast.Name(name_of(node, word), ast.Store()))
    return at(value, ast.NamedExpr(target, value))


def assigned(node: ast.AST, word: str, value: ast.expr) -> ast.stmt:
    """Return ``name = value``."""
    return at(node, ast.Assign([at(node, ast.Name(name_of(node, word), ast.Store()))], value))


def constant(value: Any) -> ast.Constant:
    """Return an expression that is a value: a function, a class."""
    return ast.Constant(value)


def call(node: ast.AST, function: str | ast.expr, *args: ast.expr) -> ast.expr:
    """Return a call of something built in, or of an expression."""
    named = constant(getattr(builtins, function)) if isinstance(function, str) else function
    return at(node, ast.Call(at(node, named), list(args), []))


def is_read_alone(node: ast.expr) -> bool:
    """Whether an expression reads names, fields and items, and does nothing else."""
    return all(isinstance(one, READING) for one in ast.walk(node))


def without_context(node: ast.With) -> list[ast.stmt] | None:
    """Return ``with`` what changes no result, or suppresses exceptions, without it; None for others."""
    if len(node.items) == 1:
        taken = _suppressed(node)
        if taken is not None:
            return taken
    for item in node.items:
        if not is_plain_context(item.context_expr) or item.optional_vars is not None:
            return None
    return node.body


def _suppressed(node: ast.With) -> list[ast.stmt] | None:
    """Return ``with suppress(E)`` as a ``try``; None for any other."""
    (item,) = node.items
    given = item.context_expr
    if not isinstance(given, ast.Call) or given.keywords or item.optional_vars is not None:
        return None
    word = given.func.attr if isinstance(given.func, ast.Attribute) else getattr(given.func, "id", "")
    if word != "suppress":
        return None
    types = at(given, ast.Tuple(given.args, ast.Load()))
    clause = at(node, ast.ExceptHandler(types, None, [at(node, ast.Pass())]))
    return [at(node, ast.Try(node.body, [clause], [], []))]


def is_plain_context(given: ast.expr) -> bool:
    """Whether an expression is a context, or a decorator, that changes no result."""
    named = given.func if isinstance(given, ast.Call) and not given.args else None
    word = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    return word in _PLAIN_CONTEXTS


def loop_without_else(node: ast.For | ast.While) -> list[ast.stmt]:
    """Return a loop with ``else`` as one that notes whether it was left, and an ``if``."""
    true, false = (at(node, ast.Constant(value)) for value in (True, False))
    otherwise, node.orelse = node.orelse, []
    node.body = Left(assigned(node, "left", true)).in_body(node.body)
    behind = at(node, ast.If(at(node, ast.UnaryOp(ast.Not(), load(node, "left"))), otherwise, []))
    return [assigned(node, "left", false), node, behind]


class Left(ast.NodeTransformer):
    """Each ``break`` of one loop, with a statement before it."""

    def __init__(self, before: ast.stmt) -> None:
        self._before = before

    def in_body(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for one in body:
            made = self.visit(one)
            found += made if isinstance(made, list) else [made]
        return found

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [self._before, node]

    def visit_For(self, node: ast.For) -> ast.AST:
        return node  # its breaks are its own

    def visit_While(self, node: ast.While) -> ast.AST:
        return node


def taken_apart(node: ast.Assign) -> list[ast.stmt] | None:
    """Return ``a, *b, c = x`` as assignments of items; None where no target has a star."""
    (target, *others) = node.targets
    if others or not isinstance(target, ast.Tuple | ast.List):
        return None
    stars = [k for k, one in enumerate(target.elts) if isinstance(one, ast.Starred)]
    if len(stars) != 1:
        return None
    (star,), many = stars, len(target.elts)
    begin = [assigned(node, "whole", node.value)]
    length = call(node, "len", load(node, "whole"))
    parts_said = [
        ast.Constant(f"not enough values to unpack (expected at least {many - 1}, got "),
        ast.FormattedValue(copy.deepcopy(length), -1, None),
        ast.Constant(")"),
    ]
    error = call(node, "ValueError", at(node, ast.JoinedStr(parts_said)))
    few = at(node, ast.Compare(length, [ast.Lt()], [ast.Constant(many - 1)]))
    if many > 1:
        begin.append(at(node, ast.If(few, [at(node, ast.Raise(error, None))], [])))
    values: list[ast.expr] = []
    for k, one in enumerate(target.elts):
        index = k if k < star else k - many
        if isinstance(one, ast.Starred):
            target.elts[k] = one.value
            end = None if k == many - 1 else ast.Constant(k - many + 1)
            cut = ast.Subscript(load(node, "whole"), ast.Slice(ast.Constant(k), end, None), ast.Load())
            values.append(call(node, "list", at(node, cut)))
        else:
            values.append(at(node, ast.Subscript(load(node, "whole"), ast.Constant(index), ast.Load())))
    parts = zip(target.elts, values, strict=True)
    return [*begin, *(at(node, ast.Assign([one], value)) for one, value in parts)]


def one_by_one(node: ast.Assign) -> list[ast.stmt] | None:
    """Return ``a, b = self.a, self.b`` as two assignments; None where one could change what another reads."""
    (target, *others) = node.targets
    if others or not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return None
    names = {one.id for one in target.elts if isinstance(one, ast.Name)}
    parts = [one for value in node.value.elts for one in ast.walk(value)]
    read = {one.id for one in parts if isinstance(one, ast.Name)}
    is_read_alone = all(isinstance(one, READING) for one in parts)
    if (
        len(names) != len(target.elts)
        or len(names) != len(node.value.elts)
        or names & read
        or not is_read_alone
    ):
        return None
    pairs = zip(target.elts, node.value.elts, strict=True)
    return [at(node, ast.Assign([one], value)) for one, value in pairs]


def the_same(node: ast.expr) -> list[ast.expr] | None:
    """Return ``[x] * 3`` as three reads of one value; None for anything else."""
    sides = [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else []
    items = [one for one in sides if isinstance(one, ast.List | ast.Tuple) and len(one.elts) == 1]
    counts = [one.value for one in sides if isinstance(one, ast.Constant) and type(one.value) is int]
    if (
        len(items) != 1
        or len(counts) != 1
        or not 1 <= counts[0] <= 32
        or isinstance(items[0].elts[0], ast.Starred)
    ):
        return None
    first = bound(node, "same", items[0].elts[0])
    return [first, *(load(node, "same") for _ in range(counts[0] - 1))]


def chosen_case(node: ast.Match, outside: Outside) -> list[ast.stmt] | None:
    """Return ``match`` as a chain of ``if``; None where a pattern is none that a program has."""
    whole: list[ast.stmt] = []
    for case in reversed(node.cases):
        tests = _tests(case.pattern, load(node, "subject"), outside)
        if tests is None:
            return None
        tests += [case.guard] if case.guard is not None else []
        if tests:
            test = tests[0] if len(tests) == 1 else at(case.pattern, ast.BoolOp(ast.And(), tests))
            whole = [at(case.pattern, ast.If(test, case.body, whole))]
        else:
            whole = case.body
    return [assigned(node, "subject", node.subject), *whole]


def _tests(pattern: ast.pattern, value: ast.expr, outside: Outside) -> list[ast.expr] | None:
    """Return what has to be true of a value, in order; names are assigned on the way."""
    if isinstance(pattern, ast.MatchValue | ast.MatchSingleton):
        is_value = isinstance(pattern, ast.MatchValue)
        wanted = pattern.value if isinstance(pattern, ast.MatchValue) else ast.Constant(pattern.value)
        return [at(pattern, ast.Compare(value, [ast.Eq() if is_value else ast.Is()], [wanted]))]
    if isinstance(pattern, ast.MatchAs):
        inner = [] if pattern.pattern is None else _tests(pattern.pattern, value, outside)
        if inner is None or pattern.name is None:
            return inner
        target = ast.Name(pattern.name, ast.Store())
        kept = ast.Compare(at(pattern, ast.NamedExpr(target, value)), [ast.Is()], [value])  # always true
        return [*inner, at(pattern, kept)]
    if isinstance(pattern, ast.MatchOr):
        parts = [_tests(one, value, outside) for one in pattern.patterns]
        known = [_all_of(pattern, one) for one in parts if one is not None]
        return None if len(known) < len(parts) else [at(pattern, ast.BoolOp(ast.Or(), known))]
    if isinstance(pattern, ast.MatchClass):
        return _tests_of_class(pattern, value, outside)
    return _tests_of_items(pattern, value, outside) if isinstance(pattern, ast.MatchSequence) else None


def _all_of(node: ast.AST, tests: list[ast.expr]) -> ast.expr:
    if not tests:
        return at(node, ast.Constant(True))
    return tests[0] if len(tests) == 1 else at(node, ast.BoolOp(ast.And(), tests))


def _tests_of_class(pattern: ast.MatchClass, value: ast.expr, outside: Outside) -> list[ast.expr] | None:
    found = [call(pattern, "isinstance", value, pattern.cls)]
    names: list[str | None] = list(_positional_names(pattern.cls, outside))
    inner = [*pattern.patterns, *pattern.kwd_patterns]
    if len(pattern.patterns) > len(names):
        return None
    names = [*names[: len(pattern.patterns)], *pattern.kwd_attrs]
    for own, name in zip(inner, names, strict=True):
        field = value if name is None else at(own, ast.Attribute(value, name, ast.Load()))
        tests = _tests_of_part(own, field, outside)
        if tests is None:
            return None
        found += tests
    return found


def _positional_names(node: ast.expr, outside: Outside) -> Sequence[str | None]:
    """Return the fields that the positional patterns of a class are; None for the value itself."""
    if isinstance(node, ast.Name):
        known, value = outside(node.id)
        if node.id in _SELVES and value is getattr(builtins, node.id):
            return [None]
        return getattr(value, "__match_args__", ()) if known else ()
    return ()


def _tests_of_part(pattern: ast.pattern, part: ast.expr, outside: Outside) -> list[ast.expr] | None:
    """Return the tests of a field or an item, which is read once."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
        return []
    kept = bound(pattern, "part", part)
    held = at(pattern, ast.Compare(kept, [ast.Is()], [load(pattern, "part")]))
    tests = _tests(pattern, load(pattern, "part"), outside)
    return None if tests is None else [held, *tests]


def _tests_of_items(pattern: ast.MatchSequence, value: ast.expr, outside: Outside) -> list[ast.expr] | None:
    many = len(pattern.patterns)
    stars = [k for k, one in enumerate(pattern.patterns) if isinstance(one, ast.MatchStar)]
    both = at(pattern, ast.Tuple([constant(list), constant(tuple)], ast.Load()))
    length = call(pattern, "len", value)
    word = ast.GtE() if stars else ast.Eq()
    found = [
        call(pattern, "isinstance", value, both),
        at(pattern, ast.Compare(length, [word], [ast.Constant(many - len(stars))])),
    ]
    for k, one in enumerate(pattern.patterns):
        if isinstance(one, ast.MatchStar):
            if one.name is None:
                continue
            end = None if k == many - 1 else ast.Constant(k - many + 1)
            cut = at(one, ast.Subscript(value, ast.Slice(ast.Constant(k), end, None), ast.Load()))
            tests = _tests_of_part(at(one, ast.MatchAs(None, one.name)), call(one, "list", cut), outside)
        else:
            index = ast.Constant(k - many if stars and k > stars[0] else k)
            tests = _tests_of_part(one, at(one, ast.Subscript(value, index, ast.Load())), outside)
        if tests is None:
            return None
        found += tests
    return found
