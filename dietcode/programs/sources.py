"""The text of a program's functions, and what names in it stand for before anything runs."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs.class_constants import class_of_text
from dietcode.programs.decorators import DECORATORS, undecorated
from dietcode.programs.lambdas import definition_of
from dietcode.programs.nested_functions import COMPUTED, NestedFunction, taken_out
from dietcode.programs.shared_lists import is_changed_by
from dietcode.programs.simplifying import simplified
from dietcode.programs.statements import is_plain_context
from dietcode.runtime.programs.instances import plain_value

_MISSING = object()
_BODIES = ("body", "orelse", "finalbody")  # of statements, and of what takes exceptions
_OF_VALUES = ("shape", "ndim", "T", "mT", "item", "tolist")  # of a weight, as of any tensor


class FunctionSource:
    """A function with its syntax tree.

    Parameters
    ----------
    function : function
        Written by ``def``, in a file.

    Attributes
    ----------
    parameters : list of str
        Those by position, and those by name; then ``*args`` and ``**kwargs``, which calls give by name.
    rest, named_rest : str
        The names of ``*args`` and ``**kwargs``, empty without.

    Raises
    ------
    ModelError
        Its text cannot be read.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.functions: dict[str, NestedFunction] = {}
        if isinstance(function, NestedFunction):  # simplified with the outer one
            self.file, self.tree = function.outer.file, function.tree
        else:
            self.tree = simplified(self._read(), self.outside)
        given = self.tree.args
        self.rest = given.vararg.arg if given.vararg else ""
        self.named_rest = given.kwarg.arg if given.kwarg else ""
        rest = [one for one in (given.vararg, given.kwarg) if one is not None]
        given.kwonlyargs += rest
        given.kw_defaults += [None for _ in rest]
        given.vararg = given.kwarg = None
        self._plain = [one.arg for one in (*given.posonlyargs, *given.args)]
        self.parameters = [*self._plain, *(one.arg for one in given.kwonlyargs)]
        self.chains: dict[tuple[ast.AST, int], Any] = {}
        self._defaults: dict[int, Any] = {}
        self.functions = taken_out(self.tree, self, _stores(self.parameters, self.tree))
        for one in self.functions.values():
            for decorator in one.tree.decorator_list:
                if not is_plain_context(decorator):
                    raise self.refusal(one.tree, f"{one.__name__} is decorated; allowed: {DECORATORS}")

    def _read(self) -> ast.FunctionDef:
        function = self.function
        try:
            lines, first = inspect.getsourcelines(function)
            self.file = inspect.getsourcefile(function) or "?"
        except (OSError, TypeError) as error:
            raise ModelError(f"{function.__name__}: its text cannot be read; put it into a file") from error
        if hasattr(function, "__wrapped__"):
            where = f"{Path(self.file).name}:{first}"
            raise ModelError(f"{where}: {function.__name__} is decorated; allowed: {DECORATORS}")
        if function.__name__ == "<lambda>":
            known = definition_of(function)
            if known is None:
                where = f"{Path(self.file).name}:{first}"
                raise ModelError(f"{where}: a lambda beside others that look alike; write it by def")
            return known
        tree = ast.parse(textwrap.dedent("".join(lines)))
        ast.increment_lineno(tree, first - 1)
        found = tree.body[0]
        if not isinstance(found, ast.FunctionDef):
            raise ModelError(f"{Path(self.file).name}:{first}: what is no function by def; write it by def")
        return found

    def refusal(self, node: ast.AST, what: str) -> ModelError:
        """Return the error of what a program cannot have, with file and line."""
        return ModelError(f"{self.where(node)}: {what}")

    def where(self, node: ast.AST) -> str:
        """Return file and line of a node."""
        return f"{Path(self.file).name}:{getattr(node, 'lineno', self.tree.lineno)}"

    def static_value(self, node: ast.Name) -> Any:
        """Return what a name stands for that is not local; None for any other."""
        return None if node.id in self.stores else self.outside(node.id)[1]

    @cached_property
    def stores(self) -> dict[str, int]:
        """How often each local name is assigned; parameters count as assigned once."""
        return _stores(self.parameters, self.tree)

    @cached_property
    def stored_in_loops(self) -> set[str]:
        """The names that loops assign to: such a one may be read above the line that assigns to it."""
        loops = [one for one in ast.walk(self.tree) if isinstance(one, ast.For | ast.While)]
        nodes = [node for loop in loops for node in ast.walk(loop)]
        return {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}

    @cached_property
    def assigned_first(self) -> set[str]:
        """The names that a statement outside of loops assigns to, behind which is every read of them."""
        lists = [getattr(one, word, []) for one in ast.walk(self.tree) for word in _BODIES]
        found: set[str] = set()
        for body in lists:
            for at, one in enumerate(body if isinstance(body, list) else []):
                targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
                names = {own.id for own in targets if isinstance(own, ast.Name)}
                found |= {name for name in names if _reads(body[at + 1 :], name) == _reads([self.tree], name)}
        return found - self.stored_in_loops

    @cached_property
    def _closure(self) -> dict[str, Any]:
        if isinstance(self.function, NestedFunction):
            return {}
        names = self.function.__code__.co_freevars
        cells = zip(names, self.function.__closure__ or (), strict=True)
        return {name: cell.cell_contents for name, cell in cells}

    def outside(self, name: str) -> tuple[bool, Any]:
        """Return whether a name that is not local stands for something, and that."""
        if name in self.functions:
            return True, self.functions[name]
        if isinstance(self.function, NestedFunction):
            found: tuple[bool, Any] = self.function.outer.outside(name)
            return found
        for space in (self._closure, self.function.__globals__, vars(builtins)):
            if name in space:
                return True, space[name]
        own = class_of_text(self.function) if name == "__class__" else None
        return own is not None, own

    @property
    def num_plain(self) -> int:
        """How many parameters calls give by position."""
        own = self.function
        return len(self._plain) - (len(own.read) if isinstance(own, NestedFunction) else 0)

    @property
    def num_defaults(self) -> int:
        """How many of the last parameters have defaults."""
        found = 0
        for position in reversed(range(len(self.parameters))):
            try:
                self.default(position)
            except KeyError:
                break
            found += 1
        return found

    def default(self, position: int) -> Any:
        """Return the default of a parameter, by its position: always the same one.

        Raises
        ------
        KeyError
            It has none.
        ModelError
            It is no constant, or the function changes it.
        """
        if position not in self._defaults:
            self._defaults[position] = found = self._default(position)
            name = self.parameters[position]
            if found is COMPUTED:
                what = f"the default of {name} is computed, and a call with * or of partial leaves it out"
                raise self.refusal(self.tree, f"{what}; give it there")
            trees = (self.tree, *(one.tree for one in self.functions.values()))
            if isinstance(found, list | dict | set) and any(is_changed_by(one, name) for one in trees):
                raise self.changed_default(position)
        return self._defaults[position]

    def changed_default(self, position: int) -> ModelError:
        """Return the error of a default that is changed."""
        name = self.parameters[position]
        what = f"the default of {name} is changed, which Python keeps from call to call"
        return self.refusal(self.tree, f"{what}; write {name}=None, and make one where it is None")

    def _default(self, position: int) -> Any:
        if position >= len(self._plain):
            return (self.function.__kwdefaults__ or {})[self.parameters[position]]
        defaults = self.function.__defaults__ or ()
        last = len(self._plain)
        if isinstance(self.function, NestedFunction):
            last -= len(self.function.read)
        at = position - (last - len(defaults))
        if at < 0 or position >= last:
            raise KeyError(position)
        return defaults[at]


def _stores(parameters: Iterable[str], tree: ast.FunctionDef) -> dict[str, int]:
    """Return how often each local name is assigned."""
    found = dict.fromkeys(parameters, 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found[node.id] = found.get(node.id, 0) + 1
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            found[node.name] = found.get(node.name, 0) + 1
    return found


def _reads(body: Iterable[ast.AST], name: str) -> int:
    """Return how often statements read a variable."""
    nodes = (node for one in body for node in ast.walk(one))
    return sum(
        isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load) for one in nodes
    )


class Statics:
    """What expressions of a function stand for that no instance changes: modules, weights, constants.

    Parameters
    ----------
    source : FunctionSource
    given : dict of str to object
        The parameters that are static in this context.
    """

    def __init__(self, source: FunctionSource, given: dict[str, Any]) -> None:
        self.source = source
        self.names = dict(given)

    def find(self, node: ast.expr) -> tuple[bool, Any]:
        """Return whether an expression is static, and its value."""
        found = self._find(node)
        if isinstance(found, Enum):  # as what a program has it
            found = plain_value(found)
        elif hasattr(found, "__wrapped__"):
            found = self._undecorated(node, found)
        return (False, None) if found is _MISSING else (True, found)

    def _find(self, node: ast.expr) -> Any:
        rule = _STATIC.get(type(node))
        return _MISSING if rule is None else rule(self, node)

    def _undecorated(self, node: ast.expr, function: Any) -> Any:
        """Return a function without what makes no difference to its results."""
        inner = undecorated(function)
        is_kept = isinstance(function, functools._lru_cache_wrapper)
        code = getattr(inner, "__code__", None)
        if is_kept and code is not None and inner.__name__ in code.co_names:
            raise self.source.refusal(
                node, f"{inner.__name__} calls itself and keeps its results; write it within the function"
            )
        return inner

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        if node.id in self.source.stores or " " in node.id:  # one of our own is local
            return _MISSING
        known, value = self.source.outside(node.id)
        if not known:
            raise self.source.refusal(node, f"the name {node.id!r} stands for nothing")
        return value

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self._find(node.value)
        if base is _MISSING or (is_tensor(base) and node.attr in _OF_VALUES):
            return _MISSING
        try:
            return getattr(base, node.attr)
        except AttributeError as error:
            raise self.source.refusal(node, str(error)) from None

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self._find(node.value)
        at = _MISSING if base is _MISSING or is_tensor(base) else self._find(node.slice)
        if at is _MISSING:
            return _MISSING
        if isinstance(base, Mapping) and isinstance(at, str) and at not in base:
            base = {plain_value(key) if isinstance(key, Enum) else key: own for key, own in base.items()}
        try:
            return base[at]
        except (TypeError, LookupError) as error:
            raise self.source.refusal(node, str(error)) from None

    def _negated(self, node: ast.UnaryOp) -> Any:
        value = self._find(node.operand) if isinstance(node.op, ast.USub) else _MISSING
        return -value if isinstance(value, int | float) else _MISSING

    def _computed(self, node: ast.BinOp) -> Any:
        """Fold arithmetic of numbers; what fails does so where it is computed."""
        rule = _ARITHMETIC.get(type(node.op))
        sides = [self._find(one) for one in (node.left, node.right)] if rule is not None else []
        if rule is None or not all(type(one) in (int, float) for one in sides):
            return _MISSING
        try:
            return rule(*sides)
        except (ArithmeticError, ValueError):
            return _MISSING

    def _of_call(self, node: ast.Call) -> Any:
        """Fold ``len`` of static things, and numbers that are written as texts, as ``float("inf")``."""
        function: Any = self._find(node.func) if isinstance(node.func, ast.Name) else None
        if len(node.args) != 1 or node.keywords or not any(function is one for one in (len, int, float)):
            return _MISSING
        value = self._find(node.args[0])
        if function is len:
            return _MISSING if value is _MISSING or is_tensor(value) else len(value)
        if not isinstance(value, str):
            return _MISSING
        try:
            return function(value)
        except ValueError as error:
            raise self.source.refusal(node, str(error)) from None

    def static_items(self, node: ast.expr) -> list[Any] | None:
        """Return the items of a container of modules or weights, or of its slice; None for anything else."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            ends = [
                (True, None) if one is None else self.find(one)
                for one in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            whole = self.static_items(node.value) if all(known for known, _ in ends) else None
            return None if whole is None else whole[slice(*(value for _, value in ends))] or None
        value = self._find(node)
        if value is _MISSING or is_tensor(value) or isinstance(value, str | range | dict):
            return None
        try:
            items = list(value)
        except TypeError:
            return None
        return items if items and all(is_module(one) or is_tensor(one) for one in items) else None


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_STATIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.BinOp: Statics._computed,
    ast.Constant: lambda _, node: node.value,
    ast.Name: Statics._name,
    ast.Attribute: Statics._attribute,
    ast.Subscript: Statics._subscript,
    ast.UnaryOp: Statics._negated,
    ast.Call: Statics._of_call,
}


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch."""
    import torch

    return isinstance(value, torch.Tensor)


def is_module(value: Any) -> bool:
    """Whether a value is a module of PyTorch."""
    import torch

    return isinstance(value, torch.nn.Module)


def is_frozen(value: Any) -> bool:
    """Whether a value has a part in the choice of a context: modules, functions and weights."""
    return value is not None and not isinstance(value, int | float | bool | str | tuple | list | dict)
