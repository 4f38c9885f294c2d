"""Functions that are written within a function become functions beside it, which are given what they read."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from dietcode.programs.statements import at, constant


@dataclass(eq=False)
class NestedFunction:
    """A function that is written within another one.

    Attributes
    ----------
    tree : FunctionDef
        Its last parameters are the variables of the outer function that it reads; calls pass them by name.
    outer : FunctionSource
        Of the outer function.
    computed : dict of str to str
        By the names of parameters, the variables that have their defaults, where these are computed.
    """

    tree: ast.FunctionDef
    outer: Any
    read: list[str] = field(default_factory=list)
    computed: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Be named as functions are."""
        pairs = _defaults(self.tree)
        self.computed = {one.arg: value.id for one, value in pairs if isinstance(value, ast.Name)}
        own = self.outer.function
        self.__name__, self.__module__ = self.tree.name, own.__module__
        self.__qualname__ = f"{own.__qualname__}.<locals>.{self.tree.name}"
        self.__globals__ = own.__globals__

    @property
    def __defaults__(self) -> tuple[Any, ...]:
        """The values of its last own parameters, `COMPUTED` for those that calls give."""
        return tuple(map(_value_of, self.tree.args.defaults))

    @property
    def __kwdefaults__(self) -> dict[str, Any]:
        """The values of its parameters that are given by name alone."""
        given = self.tree.args
        pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        return {own.arg: _value_of(value) for own, value in pairs if value is not None}

    def positions(self, many: int) -> set[str]:
        """Return the names of its first parameters, of which a call gives so many by position."""
        given = self.tree.args
        return {one.arg for one in [*given.posonlyargs, *given.args][:many]}


COMPUTED = object()
"""The default of a parameter that each call gives, as it was where the function was defined."""


def with_variables(tree: ast.FunctionDef) -> list[ast.stmt]:
    """Return a function within another one behind assignments of its defaults that are no constants.

    ``def f(n=len(x)): …`` becomes ``default = len(x)`` and ``def f(n=default): …``, whose calls give it.
    """
    found: list[ast.stmt] = []
    variables: dict[ast.expr, ast.expr] = {}
    for own, value in _defaults(tree):
        if not _is_constant(value):
            name = f"default {tree.name} {own.arg} {tree.lineno} {tree.col_offset}"
            found.append(at(value, ast.Assign([at(value, ast.Name(name, ast.Store()))], value)))
            variables[value] = at(value, ast.Name(name, ast.Load()))
    given = tree.args
    given.defaults = [variables.get(one, one) for one in given.defaults]
    given.kw_defaults = [one if one is None else variables.get(one, one) for one in given.kw_defaults]
    return [*found, tree]


def _defaults(tree: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr]]:
    given = tree.args
    plain = [*given.posonlyargs, *given.args]
    own = [*plain[len(plain) - len(given.defaults) :], *given.kwonlyargs]
    values = [*given.defaults, *given.kw_defaults]
    return [(one, value) for one, value in zip(own, values, strict=True) if value is not None]


def _is_constant(node: ast.expr) -> bool:
    """Whether an expression is what no call can change: a number, a text, a tuple of them."""
    constants = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load)
    return all(isinstance(one, constants) for one in ast.walk(node))


def _value_of(default: ast.expr) -> Any:
    return COMPUTED if isinstance(default, ast.Name) else ast.literal_eval(default)


def taken_out(tree: ast.FunctionDef, outer: Any, variables: Mapping[str, int]) -> dict[str, NestedFunction]:
    """Take the functions out of a function's text, and return them by name.

    Parameters
    ----------
    tree : FunctionDef
        It is changed: calls of these functions pass the variables that they read.
    outer : FunctionSource
        Of the function.
    variables : mapping
        The function's own, by name.
    """
    found = {one.name: NestedFunction(one, outer) for one in _definitions(tree)}
    if not found:
        return {}
    _Without().visit(tree)
    own = {name: _names(one.tree) for name, one in found.items()}
    read = {name: (loads - stores) & set(variables) for name, (loads, stores) in own.items()}
    given = {name: set(one.computed.values()) for name, one in found.items()}
    changed = True
    while changed:
        changed = False
        for name, (loads, stores) in own.items():
            more = {one for called in loads & set(found) for one in read[called] | given[called]}
            more -= stores | read[name]
            read[name] |= more
            changed |= bool(more)
    for name, one in found.items():
        one.read = sorted(read[name])
        one.tree.args.args += [ast.arg(arg) for arg in one.read]
    for text in (tree, *(function.tree for function in found.values())):
        _Passing(found).visit(text)
        _Closures(found).visit(text)
        ast.fix_missing_locations(text)
    return found


def _definitions(tree: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Return the functions that stand in a function itself, not in one of these."""
    found: list[ast.FunctionDef] = []
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, ast.FunctionDef):
            found.append(one)
        else:
            waiting = [*ast.iter_child_nodes(one), *waiting]
    return found


def functions_named(tree: ast.FunctionDef, outer: set[str]) -> set[str]:
    """Return the functions within functions that names stand for in one, if outside of it they are these."""
    return (outer - _names(tree)[1]) | {one.name for one in _definitions(tree)}


def _names(tree: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """Return the names that a function reads, and those that are its own."""
    loads: set[str] = set()
    given = tree.args
    stores = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    stores |= {given.vararg.arg} if given.vararg else set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef):  # whose parameters and variables are its own
            stores |= {node.name}
            inner, own = _names(node)
            loads |= inner - own
            continue
        if isinstance(node, ast.Name):
            (loads if isinstance(node.ctx, ast.Load) else stores).add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            stores.add(node.name)
        waiting += ast.iter_child_nodes(node)
    return loads, stores


class _Without(ast.NodeTransformer):
    """The definitions of one function left out."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if getattr(self, "_is_inside", False):
            return ast.copy_location(ast.Pass(), node)
        self._is_inside = True
        return self.generic_visit(node)


class _Passing(ast.NodeTransformer):
    """Calls of functions with the variables that they read."""

    def __init__(self, functions: Mapping[str, NestedFunction]) -> None:
        self._functions = functions

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        known = self._functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if known is None:
            return node
        has_stars = any(isinstance(one, ast.Starred) for one in node.args)
        own = {one.arg for one in node.keywords} | known.positions(len(node.args))
        left = {} if has_stars or None in own else known.computed
        pairs = {name: variable for name, variable in left.items() if name not in own}
        for name, variable in (pairs | {name: name for name in known.read}).items():
            value = ast.copy_location(ast.Name(variable, ast.Load()), node)
            node.keywords.append(ast.copy_location(ast.keyword(name, value), node))
        return node


class _Closures(ast.NodeTransformer):
    """Functions within a function where their names are read, and not called, as calls that make values."""

    def __init__(self, functions: Mapping[str, NestedFunction]) -> None:
        self._functions = functions

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Leave the name that is called; give what is a value already the variables that it reads."""
        named: Any = node.func.value if isinstance(node.func, ast.Constant) else None
        is_closure = named is closure
        known = self._functions.get(node.args[0].id) if is_closure and _is_name(node.args[0]) else None
        if known is not None:
            node.args, node.keywords = [constant(known)], [*node.keywords, *self._read(node, known)]
        if is_closure:
            return node
        if not isinstance(node.func, ast.Name):
            node.func = self.visit(node.func)
        node.args = [self.visit(one) for one in node.args]
        node.keywords = [self.visit(one) for one in node.keywords]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """``step`` -> a call of the function `closure` with the variables that it reads."""
        known = self._functions.get(node.id)
        is_made = known is not None and (known.read or known.computed)
        if known is None or not is_made or not isinstance(node.ctx, ast.Load):
            return node
        return at(node, ast.Call(constant(closure), [constant(known)], self._read(node, known)))

    def _read(self, node: ast.AST, function: NestedFunction) -> list[ast.keyword]:
        pairs = function.computed | {one: one for one in function.read}
        return [at(node, ast.keyword(own, at(node, ast.Name(one, ast.Load())))) for own, one in pairs.items()]


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def as_value(node: ast.expr, given: Sequence[ast.keyword] = ()) -> ast.expr:
    """Return a function that is named as one that is a value, with what its value is made with."""
    return at(node, ast.Call(constant(closure), [node], list(given)))


def closure(function: Any, **read: Any) -> Any:
    """Make a value of a function within a function."""
    raise AssertionError("it is made by its own rule")
