"""Calls and comprehensions that make lists, dicts and sets, said by fewer kinds of nodes."""

from __future__ import annotations

import ast
import collections
from collections.abc import Callable

from dietcode.programs import dictionaries, lists, sets
from dietcode.programs.generators import as_list
from dietcode.programs.standard_library import key_of
from dietcode.programs.statements import at, call, constant

LOOPED = ("range", "enumerate", "zip", "reversed")


def renamed(node: ast.ListComp) -> ast.ListComp:
    """Give the targets of a comprehension names of their own: it has a scope of its own."""
    names = {
        one.id: f"{one.id} {node.lineno} {node.col_offset}"
        for loop in node.generators
        for one in ast.walk(loop.target)
        if isinstance(one, ast.Name) and " " not in one.id
    }
    (first, *_) = node.generators
    source = first.iter
    first.iter = at(source, ast.Constant(None))  # it is evaluated outside
    _Renaming(names).generic_visit(node)
    first.iter = source
    return node


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return at(node, ast.Name(self._names.get(node.id, node.id), node.ctx))

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Rename what a lambda reads, and not its parameters; its defaults are outside of it."""
        given = node.args
        given.defaults = [self.visit(one) for one in given.defaults]
        given.kw_defaults = [one if one is None else self.visit(one) for one in given.kw_defaults]
        own = {one.arg for one in ast.walk(given) if isinstance(one, ast.arg)}
        node.body = _Renaming({k: v for k, v in self._names.items() if k not in own}).visit(node.body)
        return node


def with_pairs(node: ast.AST, found: ast.expr | None, rows: list[ast.expr]) -> ast.expr:
    """Return a dict of pairs, or another one with them."""
    given = at(node, ast.List(rows, ast.Load()))
    if found is None:
        return call(node, constant(dictionaries.made), given)
    return call(node, constant(dictionaries.with_pairs), found, given)


def _made_dict(node: ast.Call) -> ast.expr:
    """Return ``dict()`` of a dict, of pairs or of names; with other arguments it stays, and is refused."""
    if len(node.args) == 1 and not node.keywords:
        (given,) = node.args
        if isinstance(given, ast.GeneratorExp):
            given = renamed(at(given, ast.ListComp(given.elt, given.generators)))
        elif is_looped(given):
            given = call(given, "list", given)
        return call(node, constant(dictionaries.of_given), given)
    if node.args or any(one.arg is None for one in node.keywords):
        return node
    rows = [
        at(one, ast.Tuple([at(one, ast.Constant(one.arg)), one.value], ast.Load())) for one in node.keywords
    ]
    return with_pairs(node, None, [*rows])


def _made_set(node: ast.Call) -> ast.expr:
    """Return ``set()`` of what there is; with other arguments it stays, and is refused."""
    if len(node.args) > 1 or node.keywords:
        return node
    given = node.args[0] if node.args else at(node, ast.List([], ast.Load()))
    if isinstance(given, ast.GeneratorExp):
        given = renamed(at(given, ast.ListComp(given.elt, given.generators)))
    elif is_looped(given):
        given = call(given, "list", given)
    return call(node, constant(sets.made), given)


def _next(node: ast.Call) -> ast.expr:
    """Return ``next(iter(x))``, with a default or without; anything else stays, and is refused."""
    given = node.args[0] if node.args and len(node.args) < 3 and not node.keywords else None
    is_begun = isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id == "iter"
    if not isinstance(given, ast.Call) or not is_begun or len(given.args) != 1:
        return node
    return first_of(node, call(node, "list", given.args[0]))


def _iterator(node: ast.Call) -> ast.expr:
    """Return ``iter`` of what is no list yet as that of a list."""
    if len(node.args) != 1 or node.keywords:
        return node
    given = as_list(node.args[0])
    node.args = [call(given, "list", given) if is_looped(given) else given]
    return node


def marked_container(node: ast.Call, function: object) -> ast.expr | None:
    """Return ``OrderedDict(…)`` as a dict that is in order, and ``frozenset(…)`` as a set that is frozen."""
    word, mark = "", None  # type: tuple[str, Callable[..., object] | None]
    if function is collections.OrderedDict:
        word, mark = "dict", dictionaries.in_order
    elif function is frozenset:
        word, mark = "set", sets.frozen
    if mark is None:
        return None
    plain = ast.Call(at(node, ast.Name(word, ast.Load())), node.args, node.keywords)
    return call(node, constant(mark), at(node, plain))


def first_of(node: ast.Call, items: ast.expr) -> ast.expr:
    """Return ``next`` of what is the list of all that comes."""
    function = lists.first if len(node.args) == 1 else lists.first_or
    return call(node, constant(function), items, *node.args[1:])


def is_looped(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOPED


def comprehension_of(
    node: ast.AST,
    function: ast.expr,
    items: ast.expr,
    stands_for: Callable[[ast.expr], object],
    many: int = 1,
) -> ast.ListComp:
    """Return ``[function(one) for one in items]``, with the text of a lambda written out.

    Of a function of `many` arguments, items are tuples of them.
    """
    if isinstance(function, ast.Lambda) and len(function.args.args) == many and not function.args.defaults:
        names, value = [one.arg for one in function.args.args], function.body
    else:
        names = ["one"] if many == 1 else [f"one{k}" for k in range(many)]
        given = [at(node, ast.Name(name, ast.Load())) for name in names]
        value = call(node, function, *given)
        value = key_of(function, stands_for, given[0]) or value if many == 1 else value
    targets: list[ast.expr] = [at(node, ast.Name(name, ast.Store())) for name in names]
    target = targets[0] if many == 1 else at(node, ast.Tuple(targets, ast.Store()))
    return at(node, ast.ListComp(value, [ast.comprehension(target, items, [], 0)]))


def is_mapped(node: ast.expr, word: str) -> bool:
    """Whether a call is ``map`` or ``filter`` of what a comprehension says."""
    if not isinstance(node, ast.Call) or node.keywords or any(isinstance(x, ast.Starred) for x in node.args):
        return False
    return len(node.args) == 2 if word == "filter" else word == "map" and len(node.args) > 1


def mapped(node: ast.Call, word: str, stands_for: Callable[[ast.expr], object]) -> ast.ListComp:
    """Return ``map`` or ``filter`` as a comprehension."""
    function, *several = node.args
    items = several[0] if len(several) == 1 else call(node, at(node, ast.Name("zip", ast.Load())), *several)
    found = comprehension_of(node, function, items, stands_for, len(several))
    if word == "filter":
        loop = found.generators[0]
        is_none = isinstance(function, ast.Constant) and function.value is None
        assert isinstance(loop.target, ast.Name)  # as `comprehension_of` writes it
        one = at(node, ast.Name(loop.target.id, ast.Load()))
        loop.ifs = [one if is_none else found.elt]
        found.elt = one
    return found


MADE: dict[str, Callable[[ast.Call], ast.expr]] = {
    "dict": _made_dict,
    "set": _made_set,
    "next": _next,
    "iter": _iterator,
}
