"""Expressions that a region may have: operations on tensors without any other effect, and their leaves."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import Any

from dietcode.frontends.python.observing import Fact, Observation, is_in_place
from dietcode.frontends.python.purity import Purity, is_module, is_size_method, is_torch_function
from dietcode.runtime.recorded.units import SourceUnit

_DTYPES = ("float32", "bool", "int64", "int32")
_MOST_TEXTS = 4
_NAMED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
)


def has_tensor(kind: Any) -> bool:
    """Whether a kind is a tensor, or has one."""
    if kind[0] == "tensor":
        return True
    return kind[0] in ("tuple", "list", "record") and any(map(has_tensor, kind[-1]))


def is_tensors(kind: Any) -> bool:
    """Whether a kind is made of tensors alone, and has one."""
    if kind[0] in ("tuple", "list", "record"):
        others = [one for one in kind[-1] if one != ("scalar", type(None))]
        return bool(others) and all(map(is_tensors, others))
    return bool(kind[0] == "tensor")


def _is_operand(kind: Any) -> bool:
    if kind[0] == "tensor":
        return kind[1] in _DTYPES
    if kind[0] in ("tuple", "list", "record", "slice"):
        return all(map(_is_operand, kind[-1]))
    return bool(kind[0] in ("scalar", "object", "text"))


def are_operands(kinds: Collection[Any]) -> bool:
    """Whether what an expression gives may be an operand: lists always as long, and few texts."""
    lengths = {len(kind[1]) for kind in kinds if kind[0] == "list"}
    texts = sum(kind[0] == "text" for kind in kinds)
    return bool(kinds) and all(map(_is_operand, kinds)) and len(lengths) <= 1 and texts <= _MOST_TEXTS


class Operations:
    """Tells which expressions of a unit a region may have.

    Parameters
    ----------
    observation : Observation
    purity : Purity
    unit : SourceUnit
    broken : set of int
        Nodes that no region may have: they, or what they call, cannot be exported.
    """

    def __init__(self, observation: Observation, purity: Purity, unit: SourceUnit, broken: set[int]) -> None:
        self._observation, self._purity, self.unit, self._broken = observation, purity, unit, broken
        self._ops: dict[ast.AST, bool] = {}
        self._bound = _bound_names(unit.node)

    def fact(self, node: ast.AST) -> Fact | None:
        """Return what an expression gave; None where it never ran, or gave too much to tell."""
        known = self._observation.fact(self.unit, node)
        return None if known is None or known.is_wild else known

    def is_broken(self, node: ast.AST) -> bool:
        """Whether no region may have a node."""
        return self.unit.numbers[node] in self._broken

    def is_operation(self, node: ast.AST) -> bool:
        """Whether an expression computes tensors of what its parts give, and nothing else happens."""
        if node not in self._ops:
            self._ops[node] = not self.is_broken(node) and self._is_operation(node)
        return self._ops[node]

    def _is_operation(self, node: ast.AST) -> bool:
        known = self.fact(node)
        if known is None or not known.kinds or not all(map(is_tensors, known.kinds)):
            return False
        if isinstance(node, ast.Call):
            return self._is_pure_call(node)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
            return self._is_arithmetic(node, known)
        if isinstance(node, ast.Subscript):
            return self._is_of_tensor(node.value) and all(map(self.may_have, _parts(node)))
        if isinstance(node, ast.Attribute):
            is_part = self._is_of_tensor(node.value) and self.may_have(node.value)
            return is_part and node.attr not in ("grad", "data")
        return False

    def _is_arithmetic(self, node: ast.BinOp | ast.UnaryOp | ast.Compare, known: Fact) -> bool:
        if any(kind[0] != "tensor" for kind in known.kinds):
            return False
        if self._is_of_numbers(node):
            return False  # there is no kernel for it, and Python computes it of the number
        is_chain = isinstance(node, ast.Compare) and len(node.ops) > 1
        return not is_chain and all(map(self.may_have, _parts(node)))

    def _is_of_numbers(self, node: ast.AST) -> bool:
        """Whether an expression is arithmetic of whole numbers alone, some of which are tensors."""
        return all(
            (known := self.fact(one)) is not None
            and known.kinds <= {("tensor", "int64", ()), ("scalar", int)}
            for one in ast.iter_child_nodes(node)
            if isinstance(one, ast.expr) and not isinstance(one, ast.Constant)
        )

    def _is_of_tensor(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor, or what an operation gives; parts of other values are leaves."""
        known = self.fact(node)
        is_tensor = known is not None and all(kind[0] == "tensor" for kind in known.kinds)
        return is_tensor or self.is_operation(node)

    def _is_pure_call(self, node: ast.Call) -> bool:
        known = self.fact(node.func)
        if known is None or not known.objects or is_in_place(node):
            return False
        if any(kind[0] != "object" for kind in known.kinds):
            return False
        if len(known.objects) > 8 or any(one.arg in ("out", None) for one in node.keywords):
            return False
        if not all(map(self._purity.is_pure, known.objects.values())):
            return False
        if (
            isinstance(node.func, ast.Attribute)
            and _is_tensor_method(known)
            and not self.may_have(node.func.value)
        ):
            return False
        return all(map(self.may_have, _parts(node)))

    def may_have(self, node: ast.AST) -> bool:
        """Whether an expression may be a part of a region: within it, or as a leaf."""
        if self._is_within(node):
            return all(map(self.may_have, _parts(node)))
        known = self.fact(node)
        if known is None:
            return isinstance(node, ast.Constant)
        return are_operands(known.kinds)

    def _is_within(self, node: ast.AST) -> bool:
        """Whether a region evaluates an expression itself; its parts may be leaves all the same."""
        is_plain = isinstance(node, ast.Constant | ast.Tuple | ast.List | ast.Starred | ast.Slice)
        if is_plain or self.is_operation(node):
            return True
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.operand, ast.Constant)
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name):
            return self._is_global(node) or self._is_path(node) or self._is_size(node)
        if isinstance(node, ast.Call):
            return self._is_number_or_size(node)
        return isinstance(node, ast.BinOp) and all(map(self._is_in_size, (node.left, node.right)))

    def _is_number_or_size(self, node: ast.Call) -> bool:
        """Whether a call is as ``float("-inf")`` or ``x.size(0)``."""
        known = self.fact(node.func)
        if known is None:
            return False
        if list(known.objects.values()) in ([float], [int]):
            return bool(node.args) and all(isinstance(one, ast.Constant) for one in node.args)
        is_size = bool(known.objects) and all(map(is_size_method, known.objects.values()))
        return is_size and isinstance(node.func, ast.Attribute) and self.may_have(node.func.value)

    def _is_in_size(self, node: ast.expr) -> bool:
        """Whether an expression may be a part of arithmetic of sizes."""
        return isinstance(node, ast.Constant) or (not isinstance(node, ast.Name) and self._is_within(node))

    def _is_global(self, node: ast.AST) -> bool:
        """Whether an expression is a function or a constant of a module of Python, or of this file."""
        if isinstance(node, ast.Attribute):
            known = self.fact(node.value)
            of_module = (
                known is not None and len(known.objects) == 1 and all(map(is_module, known.objects.values()))
            )
            return of_module and self._is_global(node.value)
        if not isinstance(node, ast.Name) or node.id in self._bound:
            return False
        known = self.fact(node)
        if known is None or len(known.objects) != 1:
            return False
        value = next(iter(known.objects.values()))
        return is_module(value) or is_torch_function(value) or hasattr(value, "__code__")

    def _is_path(self, node: ast.AST) -> bool:
        """Whether an expression is a fixed part of a module, as ``self.layers[0].weight``."""
        import torch

        if isinstance(node, ast.Subscript):
            is_item = isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Attribute)
            return is_item and self._is_path(node.value)
        if not isinstance(node, ast.Attribute) or node.attr in self._purity.assigned:
            return False
        known = self.fact(node)
        if known is None or any(kind[0] in ("other", "list") for kind in known.kinds):
            return False
        base = self.fact(node.value)
        if base is None or not base.objects or len(base.objects) > 8:
            return False
        if not all(
            isinstance(one, torch.nn.Module) and self._purity.is_fixed(one) for one in base.objects.values()
        ):
            return False
        return isinstance(node.value, ast.Name) or self._is_path(node.value)

    def _is_size(self, node: ast.AST) -> bool:
        """Whether an expression is ``x.shape``, or a part of it."""
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Constant | ast.UnaryOp) and self._is_size(node.value)
        if not isinstance(node, ast.Attribute) or node.attr not in ("shape", "ndim", "dtype", "device"):
            return False
        known = self.fact(node.value)
        return (
            known is not None
            and all(kind[0] == "tensor" for kind in known.kinds)
            and self.may_have(node.value)
        )

    def leaves(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the leaves of an expression of a region, in the order in which Python evaluates them."""
        if not self._is_within(node):
            yield node
            return
        if isinstance(node, ast.Call):
            yield from self._leaves_of_function(node.func)
            for one in _parts(node):
                yield from self.leaves(one)
            return
        if isinstance(node, ast.Name) and not self._is_global(node):
            yield node
            return
        if self._is_path(node) and not self.is_operation(node):
            yield _base(node)
            return
        if self._is_global(node):
            return
        for one in _parts(node):
            yield from self.leaves(one)

    def _leaves_of_function(self, node: ast.expr) -> Iterator[ast.AST]:
        known = self.fact(node)
        if isinstance(node, ast.Attribute) and known is not None and _is_tensor_method(known):
            yield from self.leaves(node.value)
        elif self._is_global(node):
            return
        elif self._is_path(node):
            yield _base(node)
        else:
            yield node


def _parts(node: ast.AST) -> list[ast.expr]:
    """Return the parts of an expression as they are evaluated, but for the function of a call."""
    if isinstance(node, ast.Call):
        return [*node.args, *(one.value for one in node.keywords)]
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]


def _is_tensor_method(known: Fact) -> bool:
    """Whether a function that is called is a method of a tensor."""
    return any(isinstance(one, tuple) for one in known.objects.values())


def _base(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _bound_names(node: ast.AST) -> set[str]:
    """Return the names that a unit assigns somewhere, and are no global ones there."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            found.add(one.id)
        elif isinstance(one, ast.arg):
            found.add(one.arg)
        elif isinstance(one, _NAMED) and one.name and one is not node:
            found.add(one.name)
        elif isinstance(one, ast.MatchMapping) and one.rest:
            found.add(one.rest)
        elif isinstance(one, ast.alias):
            found.add((one.asname or one.name).split(".")[0])
        elif isinstance(one, ast.Global):
            found |= set(one.names)
    return found
