"""Variables that functions within a function assign to: they become items of lists, which both have.

``nonlocal`` of a name becomes ``cell[0]`` in the function whose variable it is, and in those within it. A
function within one that keeps its results (``functools.cache``, ``lru_cache``) looks into a dict first.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterator

from dietcode.programs.statements import Outside, at

CACHES = ("cache", "lru_cache")
_SCOPES = ast.FunctionDef | ast.Lambda


def with_cells(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function whose inner functions assign to no variable of an outer one.

    A ``nonlocal`` stays, and is refused, whose variable a pattern of ``match`` or ``:=`` assigns to.

    Parameters
    ----------
    tree : FunctionDef
        It is changed.
    """
    for one in _functions_in(tree):
        with_cells(one)
    wanted = {name for one in _functions_in(tree) for name in _nonlocals(one)}
    parameters = [one.arg for one in _parameters(tree)]
    own = _assigned(tree) | set(parameters)
    names = {one for one in wanted & own if not _is_bound_otherwise(tree, one)}
    if not names:
        return tree
    tree.body = [_Cells(names).visit(one) for one in tree.body]
    made = [_cell(tree, name, name in parameters) for name in sorted(names)]
    tree.body = [*made, *tree.body]
    return tree


def with_caches(tree: ast.FunctionDef, outside: Outside) -> ast.FunctionDef:
    """Return a function whose inner functions keep results in dicts, where ``functools.cache`` marks them.

    Parameters
    ----------
    tree : FunctionDef
        It is changed.
    outside : callable
        Whether a name that is not local stands for something, and that.
    """
    _Caches(outside).generic_visit(tree)
    return tree


def is_cache(decorator: ast.expr, outside: Outside) -> bool:
    """Whether a decorator is ``functools.cache`` or ``lru_cache``, with arguments or without."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name):
        return outside(named.value.id)[1] is functools and named.attr in CACHES
    found = outside(named.id)[1] if isinstance(named, ast.Name) else None
    return found is not None and any(found is getattr(functools, word) for word in CACHES)


def _functions_in(tree: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Return the functions that stand in a function itself, not in one of these."""
    return [one for one in _own_nodes(tree) if isinstance(one, ast.FunctionDef)]


def _own_nodes(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    """Go over the nodes of a function's body, without those of functions within it."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        one = waiting.pop()
        yield one
        if not isinstance(one, _SCOPES):
            waiting += ast.iter_child_nodes(one)


def _parameters(tree: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    given = tree.args
    stars = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *stars]


def _nonlocals(tree: ast.FunctionDef) -> set[str]:
    """Return the names that a function, or one within it, has of a function around it."""
    own = {name for one in _own_nodes(tree) if isinstance(one, ast.Nonlocal) for name in one.names}
    inner = {name for one in _functions_in(tree) for name in _nonlocals(one)}
    return own | (inner - _assigned(tree) - {one.arg for one in _parameters(tree)})


def _assigned(tree: ast.FunctionDef) -> set[str]:
    """Return the names that a function assigns to, but for those of a function around it."""
    nodes = list(_own_nodes(tree))
    outer = {name for one in nodes if isinstance(one, ast.Nonlocal) for name in one.names}
    stores = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return stores - outer


def _is_bound_otherwise(tree: ast.FunctionDef, name: str) -> bool:
    """Whether something assigns to a name that cannot assign to an item of a list."""
    for one in ast.walk(tree):
        if isinstance(one, ast.NamedExpr) and one.target.id == name:
            return True
        if isinstance(one, ast.MatchAs | ast.MatchStar) and one.name == name:
            return True
    return False


def _name(name: str) -> str:
    return f"cell {name}"  # no name in the text has spaces


def _cell(tree: ast.FunctionDef, name: str, is_given: bool) -> ast.stmt:
    first: ast.expr = ast.Name(name, ast.Load()) if is_given else ast.Constant(None)
    value = at(tree, ast.List([at(tree, first)], ast.Load()))
    return at(tree, ast.Assign([at(tree, ast.Name(_name(name), ast.Store()))], value))


class _Cells(ast.NodeTransformer):
    """Variables of some names as items of lists, where no scope within has a name of its own."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._names:
            return node
        cell = at(node, ast.Name(_name(node.id), ast.Load()))
        return at(node, ast.Subscript(cell, at(node, ast.Constant(0)), node.ctx))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.simple = 0
        return self.generic_visit(node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [one for one in node.names if one not in self._names]
        return node if node.names else at(node, ast.Pass())

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        hidden = _assigned(node) | {one.arg for one in _parameters(node)}
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        inner = _Cells(self._names - hidden)
        node.body = [inner.visit(one) for one in node.body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.body = _Cells(self._names - {one.arg for one in _parameters(node)}).visit(node.body)
        return node

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> ast.AST:
        loops = node.generators
        targets = {one.id for loop in loops for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        first = self.visit(loops[0].iter)
        loops[0].iter = at(node, ast.Constant(None))  # it is evaluated outside
        _Cells(self._names - targets).generic_visit(node)
        loops[0].iter = first
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node)


class _Caches(ast.NodeTransformer):
    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        kept = [one for one in node.decorator_list if not is_cache(one, self._outside)]
        given = node.args
        is_by_name = given.kwonlyargs or given.vararg or given.kwarg  # which the key would have to tell apart
        if len(kept) == len(node.decorator_list) or is_by_name:
            return node
        node.decorator_list = kept
        name, names = node.name, [one.arg for one in _parameters(node)]
        node.name = f"_{name}_computed"
        text = f"""
def {name}():
    if key in cache:
        return cache[key]
    found = {node.name}()
    cache[key] = found
    return found
"""
        (look,) = ast.parse(text).body
        assert isinstance(look, ast.FunctionDef)  # as it is written
        look.args = copy.deepcopy(given)
        read = [ast.Name(one, ast.Load()) for one in names]
        key = read[0] if len(read) == 1 else ast.Tuple(list(read), ast.Load())
        computed = look.body[1]
        assert isinstance(computed, ast.Assign) and isinstance(computed.value, ast.Call)  # as it is written
        computed.value.args = list(read)
        _Renamed({"key": f"key {name}", "cache": f"cache {name}", "found": f"found {name}"}).visit(look)
        target = ast.Name(f"key {name}", ast.Store())
        look.body.insert(0, ast.Assign([target], key))
        empty = ast.Assign([ast.Name(f"cache {name}", ast.Store())], ast.Dict([], []))
        made: list[ast.stmt] = [empty, node, look]
        for one in (empty, look):
            for part in ast.walk(one):
                at(node, part)
        return [ast.fix_missing_locations(one) for one in made]


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node
