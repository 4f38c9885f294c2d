"""Functions of Python's standard library, said by the words that programs have."""

from __future__ import annotations

import ast
import copy
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

from dietcode.programs import integers, itemwise, lists
from dietcode.programs.statements import at, bound, call, constant, load

Rule = Callable[[ast.Call], "ast.expr | None"]


def rewritten(node: ast.Call, function: Any) -> ast.expr | None:
    """Return what a call is in other words; None where it stays.

    ``chain(a, b)`` becomes ``[*a, *b]``, ``islice(x, n)`` becomes ``[*x][:n]``, ``nlargest(n, x)`` becomes
    ``sorted(x, reverse=True)[:n]``, and ``reduce(f, x)`` a list comprehension that keeps what it has so far.

    Parameters
    ----------
    node : Call
    function : object
        What is called.
    """
    has_stars = any(isinstance(one, ast.Starred) for one in node.args)
    if has_stars or any(one.arg is None for one in node.keywords):
        return None
    is_method = type(function) is type(itertools.chain.from_iterable)  # which is another one each time
    rule = next((own for one, own in _RULES if one is function or (is_method and one == function)), None)
    return itemwise.of_method(node, function) if rule is None else rule(node)


def key_of(node: ast.expr, outside: Callable[[ast.expr], Any], one: ast.expr) -> ast.expr | None:
    """Return ``itemgetter(k)``, ``attrgetter("a")`` and ``x.__getitem__`` of something; None for others."""
    if isinstance(node, ast.Attribute) and node.attr == "__getitem__":
        return at(node, ast.Subscript(node.value, one, ast.Load()))
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return None
    given, function = node.args[0], outside(node.func)
    if function is operator.itemgetter:
        return at(node, ast.Subscript(one, given, ast.Load()))
    name = given.value if isinstance(given, ast.Constant) else None
    if function is operator.attrgetter and isinstance(name, str) and name.isidentifier():
        return at(node, ast.Attribute(one, name, ast.Load()))
    return None


def _listed(node: ast.AST, *items: ast.expr) -> ast.expr:
    return at(node, ast.List([at(one, ast.Starred(one, ast.Load())) for one in items], ast.Load()))


def _chain(node: ast.Call) -> ast.expr | None:
    return None if node.keywords else _listed(node, *node.args)


def _flat(node: ast.Call) -> ast.expr | None:
    if len(node.args) != 1 or node.keywords:
        return None
    names = [at(node, ast.Name(word, ast.Store())) for word in ("own", "one")]
    loops = [
        ast.comprehension(names[0], node.args[0], [], 0),
        ast.comprehension(names[1], at(node, ast.Name("own", ast.Load())), [], 0),
    ]
    return at(node, ast.ListComp(at(node, ast.Name("one", ast.Load())), loops))


def _islice(node: ast.Call) -> ast.expr | None:
    if node.keywords or not 2 <= len(node.args) <= 4:
        return None
    ends = node.args[1:]
    low, high, step = (None, ends[0], None) if len(ends) == 1 else (*ends, None)[:3]
    cut = ast.Slice(low, high, step)
    return at(node, ast.Subscript(_listed(node, node.args[0]), at(node, cut), ast.Load()))


def _longest(node: ast.Call) -> ast.expr | None:
    named = {one.arg: one.value for one in node.keywords}
    if not node.args or set(named) - {"fillvalue"}:
        return None
    rows = at(node, ast.List([_listed(one, one) for one in node.args], ast.Load()))
    filler = named.get("fillvalue", at(node, ast.Constant(None)))
    return call(node, constant(lists.columns_of_longest), rows, filler)


def _pairwise(node: ast.Call) -> ast.expr | None:
    if len(node.args) != 1 or node.keywords:
        return None
    items = bound(node, "items", _listed(node, node.args[0]))
    cut = at(node, ast.Slice(at(node, ast.Constant(1)), None, None))
    rest = at(node, ast.Subscript(load(node, "items"), cut, ast.Load()))
    return call(node, "list", call(node, at(node, ast.Name("zip", ast.Load())), items, rest))


def _product(node: ast.Call) -> ast.expr | None:
    named = {one.arg: one.value for one in node.keywords}
    repeat = named.pop("repeat", ast.Constant(1))
    times: Any = repeat.value if isinstance(repeat, ast.Constant) else 0
    if named or not node.args or times not in range(1, 9):
        return None
    given, begin = list(node.args), []
    if times > 1:
        begin = [bound(node, f"items {k}", _listed(one, one)) for k, one in enumerate(given)]
        given = [load(node, f"items {k}") for k in range(len(given))] * times
    names = [f"part{k}" for k in range(len(given))]
    loops = [
        ast.comprehension(at(node, ast.Name(name, ast.Store())), one, [], 0)
        for name, one in zip(names, given, strict=True)
    ]
    row = at(node, ast.Tuple([at(node, ast.Name(name, ast.Load())) for name in names], ast.Load()))
    return _behind(node, begin, at(node, ast.ListComp(row, loops)))


def _behind(node: ast.AST, begin: list[ast.expr], whole: ast.expr) -> ast.expr:
    """Return an expression before which others are evaluated."""
    if not begin:
        return whole
    both = at(node, ast.Tuple([*begin, whole], ast.Load()))
    return at(node, ast.Subscript(both, at(node, ast.Constant(len(begin))), ast.Load()))


def _chosen(is_ordered: bool, with_same: bool = False) -> Rule:
    """Return the rule of ``combinations`` and ``permutations`` of a constant number of items."""

    def rule(node: ast.Call) -> ast.expr | None:
        given = node.args[1] if len(node.args) == 2 else None
        many: Any = given.value if isinstance(given, ast.Constant) else 0
        if node.keywords or many not in range(1, 7):
            return None
        items, count = load(node, "items"), call(node, "len", load(node, "items"))
        loops, reads = [], []
        for k in range(many):
            others = [at(node, ast.Name(f"place{j}", ast.Load())) for j in range(k)]
            own = at(node, ast.Name(f"place{k}", ast.Load()))
            ends = [count]
            if is_ordered and k:
                ends = [
                    at(node, ast.BinOp(others[-1], ast.Add(), at(node, ast.Constant(int(not with_same))))),
                    count,
                ]
            tests: list[ast.expr] = [
                at(node, ast.Compare(own, [ast.NotEq()], [other])) for other in others if not is_ordered
            ]
            target = at(node, ast.Name(f"place{k}", ast.Store()))
            loops.append(
                ast.comprehension(target, call(node, ast.Name("range", ast.Load()), *ends), tests, 0)
            )
            reads.append(at(node, ast.Subscript(items, own, ast.Load())))
        rows = at(node, ast.ListComp(at(node, ast.Tuple(list(reads), ast.Load())), loops))
        return _behind(node, [bound(node, "items", _listed(node, node.args[0]))], rows)

    return rule


def _applied(function: ast.expr, *given: ast.expr) -> ast.expr | None:
    """Return a function of names; None for a lambda of others."""
    if not isinstance(function, ast.Lambda):
        return call(function, function, *given)
    names = [one.arg for one in function.args.args]
    if len(names) != len(given) or function.args.defaults:
        return None
    found: ast.expr = _Replaced(dict(zip(names, given, strict=True))).visit(copy.deepcopy(function.body))
    return found


def _until(is_taken: bool) -> Rule:
    """Return the rule of ``takewhile`` and ``dropwhile``: items before and behind the first that differs."""

    def rule(node: ast.Call) -> ast.expr | None:
        if node.keywords or len(node.args) != 2:
            return None
        place, one = (at(node, ast.Name(name, ast.Load())) for name in ("place", "one"))
        is_so = _applied(node.args[0], one)
        if is_so is None:
            return None
        items = load(node, "items")
        targets: list[ast.expr] = [at(node, ast.Name(name, ast.Store())) for name in ("place", "one")]
        pairs = call(node, ast.Name("enumerate", ast.Load()), items)
        test = at(node, ast.UnaryOp(ast.Not(), is_so))
        loop = ast.comprehension(at(node, ast.Tuple(targets, ast.Store())), pairs, [test], 0)
        given = at(node, ast.GeneratorExp(place, [loop]))
        end = call(node, at(node, ast.Name("next", ast.Load())), given, call(node, "len", items))
        cut = ast.Slice(None, end, None) if is_taken else ast.Slice(end, None, None)
        begin = [bound(node, "items", _listed(node, node.args[1]))]
        return _behind(node, begin, at(node, ast.Subscript(items, at(node, cut), ast.Load())))

    return rule


def _accumulated(node: ast.Call) -> ast.expr | None:
    """Return ``[so_far := one if place == 0 else f(so_far, one) for place, one in enumerate(items)]``."""
    named = {one.arg: one.value for one in node.keywords}
    items, *rest = node.args or [ast.Constant(None)]
    function = named.pop("func", rest[0] if rest else None)
    start = named.pop("initial", None)
    if named or len(rest) > 1 or not node.args:
        return None
    place, one = (at(node, ast.Name(name, ast.Load())) for name in ("place", "one"))
    so_far = load(node, "so far")
    value = (
        at(node, ast.BinOp(so_far, ast.Add(), one)) if function is None else _applied(function, so_far, one)
    )
    if value is None:
        return None
    if start is not None:
        loop = ast.comprehension(at(node, ast.Name("one", ast.Store())), items, [], 0)
        steps = at(node, ast.ListComp(bound(node, "so far", value), [loop]))
        begin = bound(node, "so far", start)
        return at(node, ast.List([begin, at(node, ast.Starred(steps, ast.Load()))], ast.Load()))
    is_first = at(node, ast.Compare(place, [ast.Eq()], [at(node, ast.Constant(0))]))
    step = bound(node, "so far", at(node, ast.IfExp(is_first, one, value)))
    targets: list[ast.expr] = [at(node, ast.Name(name, ast.Store())) for name in ("place", "one")]
    pairs = call(node, ast.Name("enumerate", ast.Load()), items)
    loop = ast.comprehension(at(node, ast.Tuple(targets, ast.Store())), pairs, [], 0)
    return at(node, ast.ListComp(step, [loop]))


def _grouped(node: ast.Call) -> ast.expr | None:
    """Return ``groupby`` as pairs of a key and a list."""
    named = {one.arg: one.value for one in node.keywords}
    items, *rest = node.args or [ast.Constant(None)]
    key = named.pop("key", rest[0] if rest else None)
    if named or len(rest) > 1 or not node.args:
        return None
    given, keys = bound(node, "items", _listed(node, items)), load(node, "items")
    if key is not None and not (isinstance(key, ast.Constant) and key.value is None):
        mapped = at(node, ast.Name("map", ast.Load()))
        keys = call(node, "list", call(node, mapped, key, keys))
    return call(node, constant(lists.grouped), given, keys)


def _repeated(node: ast.Call) -> ast.expr | None:
    if node.keywords or len(node.args) != 2:
        return None
    one = at(node, ast.List([node.args[0]], ast.Load()))
    return at(node, ast.BinOp(one, ast.Mult(), node.args[1]))


_OPERATORS: tuple[tuple[Any, ast.operator], ...] = (
    (operator.add, ast.Add()),
    (operator.sub, ast.Sub()),
    (operator.mul, ast.Mult()),
    (operator.truediv, ast.Div()),
    (operator.floordiv, ast.FloorDiv()),
    (operator.mod, ast.Mod()),
    (operator.pow, ast.Pow()),
    (operator.matmul, ast.MatMult()),
    (operator.and_, ast.BitAnd()),
    (operator.or_, ast.BitOr()),
    (operator.xor, ast.BitXor()),
)


def operator_of(node: ast.Call, function: Any) -> ast.expr | None:
    """Return a call of a function that is an operator of two as that; None for others."""
    op = next((op for own, op in _OPERATORS if own is function), None)
    return None if op is None else _operator(op)(node)


def _operator(op: ast.operator) -> Rule:
    """Return the rule of a function that is an operator of two."""

    def rule(node: ast.Call) -> ast.expr | None:
        if node.keywords or len(node.args) != 2:
            return None
        return at(node, ast.BinOp(node.args[0], op, node.args[1]))

    return rule


def _of_ends(is_largest: bool) -> Rule:
    def rule(node: ast.Call) -> ast.expr | None:
        if len(node.args) not in (2, 3) or {one.arg for one in node.keywords} - {"key"}:
            return None
        many, items, *key = node.args
        named = [*node.keywords, *(ast.keyword("key", one) for one in key)]
        if is_largest:
            named.append(ast.keyword("reverse", at(node, ast.Constant(True))))
        ordered = call(node, at(node, ast.Name("sorted", ast.Load())), items)
        assert isinstance(ordered, ast.Call)  # it is one
        ordered.keywords = [at(node, one) for one in named]
        return at(node, ast.Subscript(ordered, at(node, ast.Slice(None, many, None)), ast.Load()))

    return rule


def _reduced(node: ast.Call) -> ast.expr | None:
    """Return ``(so_far := first, [so_far := f(so_far, one) for one in rest], so_far)[2]``."""
    if node.keywords or len(node.args) not in (2, 3):
        return None
    function, items, *start = node.args
    rest = items
    if not start:
        first = at(
            node, ast.Subscript(bound(node, "items", _listed(node, items)), ast.Constant(0), ast.Load())
        )
        begin = bound(node, "so far", first)
        cut = at(node, ast.Slice(at(node, ast.Constant(1)), None, None))
        rest = at(node, ast.Subscript(load(node, "items"), cut, ast.Load()))
    else:
        begin = bound(node, "so far", start[0])
    one = at(node, ast.Name("one", ast.Load()))
    if isinstance(function, ast.Lambda):
        names = [own.arg for own in function.args.args]
        if len(names) != 2 or function.args.defaults:
            return None
        value: ast.expr = _Replaced({names[0]: load(node, "so far"), names[1]: one}).visit(function.body)
    else:
        value = call(node, function, load(node, "so far"), one)
    loop = ast.comprehension(at(node, ast.Name("one", ast.Store())), rest, [], 0)
    steps = at(node, ast.ListComp(bound(node, "so far", value), [loop]))
    whole = at(node, ast.Tuple([begin, steps, load(node, "so far")], ast.Load()))
    return at(node, ast.Subscript(whole, at(node, ast.Constant(2)), ast.Load()))


def _of_lists(function: Callable[..., Any], many: int) -> Rule:
    """Return the rule of what a function of `lists` or `integers` does to so many arguments."""

    def rule(node: ast.Call) -> ast.expr | None:
        if node.keywords or len(node.args) != many:
            return None
        return call(node, constant(function), *node.args)

    return rule


def _power(node: ast.Call) -> ast.expr | None:
    if node.keywords or len(node.args) != 2:
        return itemwise.OF_POWERS(node)
    return at(node, ast.BinOp(node.args[0], ast.Pow(), node.args[1]))


def _power_of_floats(node: ast.Call) -> ast.expr | None:
    if len(node.args) != 2:
        return None
    base, exponent = (call(node, "float", one) for one in node.args)
    return at(node, ast.BinOp(base, ast.Pow(), exponent))


class _Replaced(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._values.get(node.id, node)


_RULES: tuple[tuple[Any, Rule], ...] = (
    (itertools.chain, _chain),
    (itertools.chain.from_iterable, _flat),
    (itertools.islice, _islice),
    (itertools.zip_longest, _longest),
    (itertools.pairwise, _pairwise),
    (itertools.product, _product),
    (itertools.accumulate, _accumulated),
    (itertools.combinations, _chosen(True)),
    (itertools.permutations, _chosen(False)),
    (itertools.combinations_with_replacement, _chosen(True, with_same=True)),
    (itertools.takewhile, _until(True)),
    (itertools.dropwhile, _until(False)),
    (itertools.groupby, _grouped),
    (itertools.repeat, _repeated),
    *((function, _operator(op)) for function, op in _OPERATORS),
    (heapq.nlargest, _of_ends(True)),
    (heapq.nsmallest, _of_ends(False)),
    (functools.reduce, _reduced),
    (math.prod, _of_lists(lists.product, 1)),
    (math.pow, _power_of_floats),
    (math.gcd, _of_lists(integers.greatest_divisor, 2)),
    (math.lcm, _of_lists(integers.least_multiple, 2)),
    (math.isqrt, _of_lists(integers.root, 1)),
    (math.factorial, _of_lists(integers.factorial, 1)),
    (math.comb, _of_lists(integers.ways, 2)),
    (pow, _power),
    *itemwise.RULES,
)
