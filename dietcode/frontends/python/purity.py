"""Which functions are tensor code alone: results follow from the arguments, and nothing is changed."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from dietcode.frontends.python.observing import Observation, assigned_attributes, is_in_place
from dietcode.programs.exporting import differs_in_training
from dietcode.programs.module import MarkedBlock
from dietcode.runtime.recorded.units import SourceUnit, unit_of

_BUILTINS = frozenset(
    {abs, all, any, bool, dict, enumerate, float, getattr, hasattr, int, isinstance, len, list, map, max, min}
    | {range, reversed, slice, sorted, sum, tuple, zip}
)
_LIST_METHODS = frozenset({"append", "extend"})
_SIZE_METHODS = frozenset({"size", "dim", "ndimension", "numel", "is_floating_point", "stride"})
_MAKING = (
    *("tensor", "as_tensor", "zeros", "ones", "full", "eye", "arange", "linspace"),
    *("zeros_like", "ones_like", "full_like"),
)

# Parts of the names of PyTorch's functions that are not pure.
_RANDOM = (
    *("rand", "normal", "multinomial", "bernoulli", "dropout", "poisson", "rrelu", "gumbel"),
    *("exponential", "geometric", "cauchy", "uniform"),
)
_OF_MEMORY = (
    "empty",
    "storage",
    "data_ptr",
    "share_memory",
    "pin_memory",
    "resize",
    "set_",
    "__set",
    "numpy",
)
_OF_STATE = ("backward", "hook", "save", "load", "compile")
_IMPURE_WORDS = (*_RANDOM, *_OF_MEMORY, *_OF_STATE)

# Nodes that no pure function has.
_BINDING = (ast.Global, ast.Nonlocal, ast.Delete, ast.NamedExpr, ast.Import, ast.ImportFrom)
_DEFINING = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncWith, ast.AsyncFor)
_IMPURE_NODES = (*_BINDING, *_DEFINING, *_SUSPENDING, ast.Try, ast.TryStar, ast.JoinedStr)


@functools.cache
def _functions_of_torch() -> tuple[frozenset[Any], frozenset[str]]:
    """Return functions of PyTorch that are pure, and names of a tensor's methods that are."""
    import torch
    from torch.overrides import get_ignored_functions, get_testing_overrides

    functions, methods = set(), set()
    known = [*get_testing_overrides(), *(getattr(torch, name) for name in _MAKING)]
    ignored = get_ignored_functions() - {getattr(torch, name) for name in _MAKING}
    for one in known:
        name = getattr(one, "__name__", "")
        is_changing = name.endswith("_") and not name.endswith("__")
        if one in ignored or is_changing or any(word in name for word in _IMPURE_WORDS):
            continue
        try:
            functions.add(one)
        except TypeError:
            continue
        if getattr(torch.Tensor, name, None) is not None:
            methods.add(name)
    return frozenset(functions), frozenset(methods - {"__get__", "__set__", "item", "tolist"})


def is_torch_function(value: Any) -> bool:
    """Whether a value is a function of PyTorch, or a method of its tensors, that changes nothing."""
    functions, methods = _functions_of_torch()
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "method":
        return value[1] in methods
    try:
        return value in functions
    except TypeError:
        return False


@dataclass(frozen=True)
class _Scope:
    """The variables of a function.

    Attributes
    ----------
    local : set of str
        Its parameters, and what it assigns.
    assigned_outside : set of str
        What functions around it assign, and global variables that functions assign.
    made_lists : set of str
        Lists that it makes itself.
    """

    local: set[str]
    assigned_outside: set[str]
    made_lists: set[str]


class Purity:
    """Tells which functions and modules are tensor code alone.

    Parameters
    ----------
    observation : Observation
    """

    def __init__(self, observation: Observation) -> None:
        self._observation = observation
        self._known: dict[Any, bool] = {}
        self._fixed: dict[int, bool] = {}
        self._kept: list[Any] = []  # so that none of these objects' numbers is another's
        self.assigned = assigned_attributes(observation.units)
        statements = (one for unit in observation.units for one in unit.nodes if isinstance(one, ast.Global))
        self._assigned_globals = {name for one in statements for name in one.names}

    def is_pure(self, value: Any) -> bool:
        """Whether a value that is called is tensor code alone."""
        import torch

        if is_torch_function(value) or isinstance(value, MarkedBlock):
            return True
        if isinstance(value, torch.nn.Module):
            return self._is_pure_module(value)
        if isinstance(value, MethodType):
            return self.is_fixed(value.__self__) and self._is_pure_function(value.__func__)
        return isinstance(value, FunctionType) and self._is_pure_function(value)

    def is_fixed(self, value: Any) -> bool:
        """Whether no tensor of a module's is changed in place while samples run, nor its fields set."""
        import torch

        if id(value) not in self._fixed:
            self._kept.append(value)
            tensors = []
            if isinstance(value, torch.nn.Module):
                tensors = [*value.parameters(), *value.buffers()]
            changed = self._observation.facts.changed
            self._fixed[id(value)] = not any(
                one.untyped_storage().data_ptr() in changed for one in tensors if one.numel()
            )
        return self._fixed[id(value)]

    def _is_pure_module(self, module: Any) -> bool:
        known = self._known.get(id(module))
        if known is not None:
            return known
        self._kept.append(module)
        self._known[id(module)] = False  # where it calls itself
        parts = list(module.modules())
        hooks = any(
            one._forward_hooks or one._forward_pre_hooks or one._backward_hooks or "forward" in vars(one)
            for one in parts
        )
        of_torch = type(module).__module__.startswith("torch.nn.")
        found = not hooks and not differs_in_training(module) and self.is_fixed(module)
        found = found and (
            all(self._is_pure_module(one) for one in module.children())
            if of_torch
            else self._is_pure_function(type(module).forward)
        )
        self._known[id(module)] = found
        return found

    def _is_pure_function(self, function: Any) -> bool:
        if not isinstance(function, FunctionType):
            return False
        code = function.__code__
        if code not in self._known:
            self._known[code] = False  # where it calls itself
            unit = self._observed_unit(code)
            node = None if unit is None else function_node(unit, code)
            if unit is not None and node is not None and not inspect.isgeneratorfunction(function):
                self._known[code] = self._is_pure_body(unit, node)
        return self._known[code]

    def _observed_unit(self, code: CodeType) -> SourceUnit | None:
        """Return the unit of code; where a file is loaded twice, the one that samples ran."""
        own = unit_of(code)
        if own is None:
            return None
        same = (one for one in self._observation.units if one.digest == own.digest)
        return next((one for one in same if one.qualname == own.qualname), None)

    def _is_pure_body(self, unit: SourceUnit, node: Any) -> bool:
        local = _local_names(node)
        around = _names_around(unit, node) - local
        if around and not all(isinstance(one, ast.Constant) for one in _defaults(node)):
            return False  # each function that is made has defaults of its own
        scope = _Scope(local, around | self._assigned_globals, _made_lists(node))
        body = node.body if isinstance(node.body, list) else [node.body]
        return all(self._is_pure_node(unit, one, scope) for statement in body for one in ast.walk(statement))

    def _is_pure_node(self, unit: SourceUnit, node: ast.AST, scope: _Scope) -> bool:
        """Whether a node itself changes nothing, and reads only what does not change."""
        if isinstance(node, ast.With):
            return _is_no_grad(node)
        if isinstance(node, _IMPURE_NODES):
            return False
        if isinstance(node, ast.expr):
            return self._is_pure_expression(unit, node, scope)
        if isinstance(node, ast.AugAssign):
            return isinstance(node.target, ast.Name) and not self._has_tensor(unit, node.value)
        if isinstance(node, ast.For | ast.comprehension):
            return not self._is_of_lists(unit, node.iter, scope.made_lists)
        return not isinstance(node, ast.If | ast.While) or not self._has_tensor(unit, node.test)

    def _is_pure_expression(self, unit: SourceUnit, node: ast.expr, scope: _Scope) -> bool:
        if isinstance(node, ast.Call):
            return self._may_call(unit, node, scope.made_lists)
        if isinstance(node, ast.IfExp):
            return not self._has_tensor(unit, node.test)
        if isinstance(node, ast.Name):
            return node.id in scope.local or self._may_read_outer(unit, node, scope)
        if isinstance(node, ast.Attribute):
            return isinstance(node.ctx, ast.Load) and self._may_read(unit, node)
        return not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load)

    def _has_tensor(self, unit: SourceUnit, node: ast.AST) -> bool:
        known = self._observation.fact(unit, node)
        return known is not None and any(kind[0] == "tensor" for kind in known.kinds)

    def _is_of_lists(self, unit: SourceUnit, node: ast.AST, made: set[str]) -> bool:
        """Whether a loop goes over a list that is given, which may be of another length next time."""
        for one in ast.walk(node):
            known = self._observation.fact(unit, one) if one in unit.numbers else None
            if known is None or (isinstance(one, ast.Name) and one.id in made):
                continue
            if any(kind[0] == "text" or (kind[0] == "list" and _has_values(kind)) for kind in known.kinds):
                return True
        return False

    def _may_read(self, unit: SourceUnit, node: ast.Attribute) -> bool:
        known = self._observation.fact(unit, node)
        if known is None:
            return True  # samples did not come there
        are_of_library = all(kind[0] != "other" or _is_library(kind[1]) for kind in known.kinds)
        return node.attr not in self.assigned and are_of_library

    def _may_read_outer(self, unit: SourceUnit, node: ast.Name, scope: _Scope) -> bool:
        """Whether a variable that is not the function's own has one value, or few objects."""
        known = self._observation.fact(unit, node)
        if known is None:
            return True  # samples did not come there
        if not _is_constant(known) or any(kind[0] == "other" for kind in known.kinds):
            return False
        return node.id not in scope.assigned_outside or _is_one_object(known)

    def _may_call(self, unit: SourceUnit, node: ast.Call, made: set[str]) -> bool:
        function = node.func
        if is_in_place(node) or any(one.arg == "out" for one in node.keywords):
            return False
        if _is_list_method(function, made):
            return True
        if isinstance(function, ast.Name) and function.id == "super":
            return False
        known = self._observation.fact(unit, function)
        if known is None:
            return True  # samples did not come there
        if known.is_wild or not known.objects:
            return False
        return all(
            (_is_hashable(one) and one in _BUILTINS) or is_size_method(one) or self.is_pure(one)
            for one in known.objects.values()
        )


def _is_list_method(function: ast.expr, made: set[str]) -> bool:
    """Whether a function that is called adds to a list that the function itself has made."""
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _LIST_METHODS
        and isinstance(function.value, ast.Name)
        and function.value.id in made
    )


def _has_values(kind: Any) -> bool:
    return not kind[1] or any(one[0] != "object" for one in kind[1])


def is_size_method(value: Any) -> bool:
    """Whether a value is a method of a tensor that says its sizes."""
    return isinstance(value, tuple) and value in {("method", name) for name in _SIZE_METHODS}


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_library(cls: type) -> bool:
    return cls.__module__.startswith(("torch", "builtins")) and cls not in (dict, set, list, bytearray)


def _is_constant(known: Any) -> bool:
    return not known.is_wild and len(known.objects) <= 8


def _is_no_grad(node: ast.With) -> bool:
    texts = {ast.unparse(one.context_expr) for one in node.items}
    return texts <= {"torch.no_grad()", "torch.inference_mode()"}


def _is_one_object(known: Any) -> bool:
    """Whether an expression gave one module or function alone."""
    return len(known.objects) == 1 and all(kind == ("object",) for kind in known.kinds)


def _local_names(node: Any) -> set[str]:
    """Return the parameters of a function, and what it assigns."""
    parameters = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    return parameters | _stored_names(ast.walk(node))


def _names_around(unit: SourceUnit, node: ast.AST) -> set[str]:
    """Return the names that functions around a function assign, and it may read."""
    within = set(ast.walk(node))
    outside = [one for one in unit.nodes if one not in within]
    return _stored_names(outside) | {one.arg for one in outside if isinstance(one, ast.arg)}


def _stored_names(nodes: Iterable[ast.AST]) -> set[str]:
    return {one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}


def _defaults(node: Any) -> list[ast.expr]:
    return [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]


def _made_lists(node: ast.AST) -> set[str]:
    """Return the variables of a function that are lists which it makes itself."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.List | ast.ListComp):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
        if isinstance(one, ast.AnnAssign) and isinstance(one.value, ast.List | ast.ListComp):
            found |= {one.target.id} if isinstance(one.target, ast.Name) else set()
    return found


def function_node(unit: SourceUnit, code: Any) -> Any:
    """Return the node of a function of a unit; None where two stand at one place."""
    found: list[ast.AST] = []
    for one in unit.nodes:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            line = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
            if line == code.co_firstlineno and one.name == code.co_name:
                found.append(one)
        elif isinstance(one, ast.Lambda) and code.co_name == "<lambda>" and one.lineno == code.co_firstlineno:
            found.append(one)
    return found[0] if len(found) == 1 else None


def is_module(value: Any) -> bool:
    """Whether a value is a module of Python, as ``torch``."""
    return isinstance(value, ModuleType)
