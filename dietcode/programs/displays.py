"""Lists, tuples, dicts and sets that a text writes out, and values that are kept, said by fewer nodes."""

from __future__ import annotations

import ast
import inspect
from enum import Enum
from types import ModuleType
from typing import Any

from dietcode.programs import dictionaries, sets
from dietcode.programs.class_constants import class_constant
from dietcode.programs.generators import as_list, has_yield
from dietcode.programs.lazy_loops import as_generator
from dietcode.programs.made_lists import is_looped, with_pairs
from dietcode.programs.nested_functions import as_value
from dietcode.programs.statements import Outside, at, call, constant


class DisplaySimplification(ast.NodeTransformer):
    """What `simplified` does to what a text writes out or keeps.

    Parameters
    ----------
    outside : callable
        Whether a name that is not local stands for something, and that.
    own : set of str
        Names that the function, or one within it, gives to something.
    tree : FunctionDef
    """

    def __init__(self, outside: Outside, own: set[str], tree: ast.FunctionDef) -> None:
        self._outside, self._tree = outside, tree
        self._own = own  # names that the function, or one within it, gives to something
        inner = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
        self._within: set[str] = set()  # the functions within one that its text may name
        self._generators = {one.name for one in inner if has_yield(one)}
        self._asked = {name for one in ast.walk(tree) if (name := _asked_next(one))}

    def _stands_for(self, node: ast.expr) -> object:
        """Return what a name outside of the function, or one of a module, stands for; None for others."""
        if isinstance(node, ast.Name):
            return None if node.id in self._own else self._outside(node.id)[1]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            base = self._stands_for(node.value)
            return getattr(base, node.attr, None) if isinstance(base, ModuleType | type) else None
        return None

    def _is_generator(self, node: ast.expr) -> bool:
        """Whether an expression is a function that yields."""
        if isinstance(node, ast.Name) and node.id in self._own:
            return node.id in self._generators
        return inspect.isgeneratorfunction(self._stands_for(node))

    def _all_kept(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """Return a value with the generators in it that variables keep as iterators."""
        if isinstance(target, ast.Name):
            return self._kept(value, target.id)
        if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple):
            return value
        if len(target.elts) == len(value.elts):
            both = zip(target.elts, value.elts, strict=True)
            value.elts = [self._all_kept(own, one) for own, one in both]
        return value

    def _kept(self, value: ast.expr, name: str) -> ast.expr:
        """Return a generator that a variable keeps as an iterator: what was taken does not come again."""
        own = as_generator(value, self._stands_for)
        if own is not None:
            return call(value, "iter", as_list(own))
        is_of_generator = isinstance(value, ast.Call) and self._is_generator(value.func)
        return call(value, "iter", value) if is_of_generator and name in self._asked else value

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """``{k: v, **d}`` -> a dict of the pair (k, v) that gets what d has, too."""
        self.generic_visit(node)
        found: ast.expr | None = None
        rows: list[ast.expr] = []
        for key, value in zip([*node.keys, None], [*node.values, None], strict=True):
            if key is not None and value is not None:
                rows.append(at(value, ast.Tuple([key, self._value_of(value)], ast.Load())))
                continue
            if rows or found is None:
                found = with_pairs(node, found, rows)
                rows = []
            if value is not None:
                found = self._with_dict(node, found, value)
        assert found is not None  # the last one begins a dict
        return found

    def _with_dict(self, node: ast.Dict, found: ast.expr, value: ast.expr) -> ast.expr:
        """Return a dict that gets what another one has, too; of a constant one, item by item."""
        known = self._stands_for(value)
        if not isinstance(known, dict):
            return call(node, constant(dictionaries.united), found, value)
        rows: list[ast.expr] = [
            at(value, ast.Tuple([at(value, ast.Constant(one)), at(value, _item_of(value, one))], ast.Load()))
            for one in known
        ]
        return with_pairs(node, found, rows)

    def _value_of(self, node: ast.expr) -> ast.expr:
        """Return a function that something keeps as a value; anything else as it is."""
        named = self._stands_for(node) if isinstance(node, ast.Name | ast.Attribute) else None
        is_within = isinstance(node, ast.Name) and node.id in self._within
        is_function = callable(named) and not isinstance(named, type)
        return as_value(node) if is_within or is_function else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``self.MOVES`` -> the dict that all objects of the class share."""
        return class_constant(node, self._tree, self._outside) or self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self._members(node.iter)
        return self.generic_visit(node)

    def _members(self, node: ast.expr) -> ast.expr:
        """Return the members of an Enum, in order, where an expression names one; all else as it is."""
        cls = self._stands_for(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if not isinstance(cls, type) or not issubclass(cls, Enum):
            return node
        named = [at(node, ast.Attribute(node, one.name, ast.Load())) for one in cls]
        return at(node, ast.Tuple([*named], ast.Load()))

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.body, node.orelse = self._value_of(node.body), self._value_of(node.orelse)
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        node.value = None if node.value is None else self._value_of(node.value)
        return self.generic_visit(node)

    def visit_List(self, node: ast.List) -> ast.AST:
        """``[*range(n)]`` -> ``[*list(range(n))]``."""
        if isinstance(node.ctx, ast.Load):
            node.elts = list(map(self._value_of, node.elts))
        for one in node.elts:
            if isinstance(one, ast.Starred):
                own = as_list(one.value)
                one.value = call(own, "list", own) if is_looped(own) else own
        return self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        """``(*a, b)`` -> ``tuple([*a, b])``."""
        has_stars = any(isinstance(one, ast.Starred) for one in node.elts)
        if isinstance(node.ctx, ast.Load):
            node.elts = list(map(self._value_of, node.elts))
        if not has_stars or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        made: ast.expr = self.visit(at(node, ast.List(node.elts, ast.Load())))
        return call(node, "tuple", made)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        pair = at(node, ast.Tuple([node.key, node.value], ast.Load()))
        rows: ast.expr = self.visit(at(node, ast.ListComp(pair, node.generators)))
        return call(node, constant(dictionaries.made), rows)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        self.generic_visit(node)
        return call(node, constant(sets.made), at(node, ast.List(node.elts, ast.Load())))

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        rows: ast.expr = self.visit(at(node, ast.ListComp(node.elt, node.generators)))
        return call(node, constant(sets.made), rows)


def _item_of(node: ast.expr, key: Any) -> ast.expr:
    return ast.Subscript(node, at(node, ast.Constant(key)), ast.Load())


def _asked_next(node: ast.AST) -> str:
    """Return the variable of which ``next`` is asked; empty for anything else."""
    is_next = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next"
    given = node.args[0] if isinstance(node, ast.Call) and is_next and node.args else None
    return given.id if isinstance(given, ast.Name) else ""
