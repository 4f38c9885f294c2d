"""Which functions are tensor code alone: what they return follows from their arguments, and nothing is changed."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from types import FunctionType, MethodType, ModuleType
from typing import Any

from dietcode.frontends.python.observing import Observation, assigned_attributes, is_in_place
from dietcode.programs.exporting import differs_in_training
from dietcode.programs.module import MarkedBlock
from dietcode.runtime.recorded.units import Unit, unit_of

_BUILTINS = frozenset(
    getattr(builtins, name)
    for name in (
        "abs all any bool dict enumerate float getattr hasattr int isinstance len list map max min range reversed "
        "slice sorted sum tuple zip"
    ).split()
)
_LISTS = frozenset({"append", "extend"})
_MAKING = "tensor as_tensor zeros ones full eye arange linspace zeros_like ones_like full_like".split()
_NOT_PURE = (
    "rand",
    "normal",
    "multinomial",
    "bernoulli",
    "dropout",
    "poisson",
    "rrelu",
    "gumbel",
    "empty",
    "backward",
    "hook",
    "storage",
    "data_ptr",
    "share_memory",
    "set_",
    "resize",
    "numpy",
    "__set",
    "pin_memory",
    "save",
    "load",
    "exponential",
    "geometric",
    "cauchy",
    "uniform",
    "random",
    "compile",
)
_CHANGING = (
    ast.Global,
    ast.Nonlocal,
    ast.Delete,
    ast.Try,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Import,
    ast.ImportFrom,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.With,
    ast.AsyncWith,
    ast.AsyncFor,
    ast.JoinedStr,
    ast.NamedExpr,
    ast.Lambda,
)


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
        if one in ignored or is_changing or any(word in name for word in _NOT_PURE):
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
        self.refused: set[Any] = set()  # functions that cannot be exported

    def is_pure(self, value: Any) -> bool:
        """Whether a value that is called is tensor code alone."""
        import torch

        if is_torch_function(value):
            return True
        if isinstance(value, MarkedBlock):
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
        if not isinstance(function, FunctionType) or function in self.refused:
            return False
        code = function.__code__
        if code not in self._known:
            self._known[code] = False  # where it calls itself
            unit = unit_of(code)
            unit = next((one for one in self._observation.units if unit and one.digest == unit.digest and one.qualname == unit.qualname), None)  # fmt: skip
            node = None if unit is None else function_node(unit, code)
            if unit is not None and node is not None and not inspect.isgeneratorfunction(function):
                self._known[code] = self._is_pure_body(unit, node)
        return self._known[code]

    def _is_pure_body(self, unit: Unit, node: Any) -> bool:
        fact = self._observation.fact
        parameters = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        stored = {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
        }
        local = parameters | stored
        around = _names_around(unit, node) - local
        if around and not all(isinstance(one, ast.Constant) for one in _defaults(node)):
            return False  # each function that is made has defaults of its own
        made = _made_lists(node)
        body = node.body if isinstance(node.body, list) else [node.body]
        for one in (inner for statement in body for inner in ast.walk(statement)):
            if isinstance(one, _CHANGING):
                if not (isinstance(one, ast.With) and _is_no_grad(one)):
                    return False
            known = fact(unit, one) if one in unit.numbers else None
            if isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
                return False
            if isinstance(one, ast.AugAssign) and (
                not isinstance(one.target, ast.Name) or self._has_tensor(unit, one.value)
            ):
                return False
            if isinstance(one, ast.Call) and not self._may_call(unit, one, made):
                return False
            if isinstance(one, ast.Attribute) and known is not None and not self._may_read(one, known):
                return False
            if isinstance(one, ast.Name) and one.id not in local and known is not None:
                if not _is_constant(known) or any(kind[0] == "other" for kind in known.kinds):
                    return False
                if one.id in around | self._assigned_globals and not _is_one_object(known):
                    return False
            if isinstance(one, ast.For | ast.comprehension) and self._is_of_lists(unit, one.iter, made):
                return False
            if isinstance(one, ast.If | ast.While | ast.IfExp) and self._has_tensor(unit, one.test):
                return False
        return True

    def _has_tensor(self, unit: Unit, node: ast.AST) -> bool:
        known = self._observation.fact(unit, node)
        return known is not None and any(kind[0] == "tensor" for kind in known.kinds)

    def _is_of_lists(self, unit: Unit, node: ast.AST, made: set[str]) -> bool:
        """Whether a loop goes over a list that is given, which may be of another length next time."""
        for one in ast.walk(node):
            known = self._observation.fact(unit, one) if one in unit.numbers else None
            if known is None or (isinstance(one, ast.Name) and one.id in made):
                continue
            if any(kind[0] == "text" or (kind[0] == "list" and _has_values(kind)) for kind in known.kinds):
                return True
        return False

    def _may_read(self, node: ast.Attribute, known: Any) -> bool:
        if node.attr in self.assigned:
            return False
        return all(kind[0] != "other" or _is_library(kind[1]) for kind in known.kinds)

    def _may_call(self, unit: Unit, node: ast.Call, made: set[str]) -> bool:
        if is_in_place(node):
            return False
        if any(one.arg == "out" for one in node.keywords):
            return False
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            if function.attr in _LISTS and function.value.id in made:
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


def _has_values(kind: Any) -> bool:
    return not kind[1] or any(one[0] != "object" for one in kind[1])


def is_size_method(value: Any) -> bool:
    """Whether a value is a method of a tensor that says its sizes."""
    return isinstance(value, tuple) and value in {
        ("method", name) for name in ("size", "dim", "ndimension", "numel", "is_floating_point", "stride")
    }


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


def _names_around(unit: Unit, node: ast.AST) -> set[str]:
    """Return the names that functions around a function assign, and it may read."""
    within = set(ast.walk(node))
    names = {one.id for one in unit.nodes if isinstance(one, ast.Name) and one not in within and not isinstance(one.ctx, ast.Load)}  # fmt: skip
    return names | {one.arg for one in unit.nodes if isinstance(one, ast.arg) and one not in within}


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


def function_node(unit: Unit, code: Any) -> Any:
    """Return the node of a function of a unit; None where two stand at one place."""
    found = []
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
