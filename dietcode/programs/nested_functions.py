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
    """

    tree: ast.FunctionDef
    outer: Any
    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Be named as functions are."""
        own = self.outer.function
        self.__name__, self.__module__ = self.tree.name, own.__module__
        self.__qualname__ = f"{own.__qualname__}.<locals>.{self.tree.name}"
        self.__globals__ = own.__globals__

    @property
    def __defaults__(self) -> tuple[Any, ...]:
        """The values of its last own parameters; raises ValueError for what is no constant."""
        return tuple(ast.literal_eval(one) for one in self.tree.args.defaults)

    @property
    def __kwdefaults__(self) -> dict[str, Any]:
        """The values of its parameters that are given by name alone; raises ValueError for no constant."""
        given = self.tree.args
        pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        return {own.arg: ast.literal_eval(value) for own, value in pairs if value is not None}


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
    changed = True
    while changed:
        changed = False
        for name, (loads, stores) in own.items():
            more = {one for called in loads & set(found) for one in read[called]} - stores - read[name]
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
        for name in known.read if known is not None else ():
            value = ast.copy_location(ast.Name(name, ast.Load()), node)
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
        if known is None or not known.read or not isinstance(node.ctx, ast.Load):
            return node
        return at(node, ast.Call(constant(closure), [constant(known)], self._read(node, known)))

    def _read(self, node: ast.AST, function: NestedFunction) -> list[ast.keyword]:
        return [at(node, ast.keyword(one, at(node, ast.Name(one, ast.Load())))) for one in function.read]


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def as_value(node: ast.expr, given: Sequence[ast.keyword] = ()) -> ast.expr:
    """Return a function that is named as one that is a value, with what its value is made with."""
    return at(node, ast.Call(constant(closure), [node], list(given)))


def closure(function: Any, **read: Any) -> Any:
    """Make a value of a function within a function."""
    raise AssertionError("it is made by its own rule")
