"""Regions of a unit: the largest pieces of straight-line tensor code."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from dietcode.frontends.python.observing import Fact, Observation, is_in_place
from dietcode.frontends.python.purity import Purity, is_module, is_size_method, is_torch_function
from dietcode.programs.module import concurrent
from dietcode.runtime.recorded.regions import Region
from dietcode.runtime.recorded.units import Unit

_DTYPES = ("float32", "bool", "int64", "int32")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MOST_LEAVES, _MOST_TEXTS = 30, 4
_READ_ALL = frozenset({"locals", "vars", "dir", "eval", "exec"})  # these read variables by other names


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


class Forming:
    """Finds the regions of a unit.

    Parameters
    ----------
    observation : Observation
    purity : Purity
    unit : Unit
    broken : set of int
        Nodes that no region may have: they, or what they call, cannot be exported.
    """

    def __init__(self, observation: Observation, purity: Purity, unit: Unit, broken: set[int]) -> None:
        self._observation, self._purity, self._unit, self._broken = observation, purity, unit, broken
        self._ops: dict[ast.AST, bool] = {}
        self._bound = _bound_names(unit.node)
        self.regions: list[Region] = []
        self.concurrent: list[int] = []
        self.instances: list[int] = []

    def run(self) -> Forming:
        """Find them."""
        for node in self._unit.nodes:
            if isinstance(node, _FUNCTIONS):
                self._function(node)
            if isinstance(node, ast.Call):
                known = self._fact(node.func)
                if known is not None and list(known.objects.values()) == [concurrent]:
                    self.concurrent.append(self._unit.numbers[node])
                if known is not None and list(known.objects.values()) == [isinstance] and len(node.args) == 2:
                    given = self._observation.fact(self._unit, node.args[0])
                    if given is not None and (given.is_wild or any(map(has_tensor, given.kinds))):
                        self.instances.append(self._unit.numbers[node])
        return self

    # ---- What may be in a region ----

    def _fact(self, node: ast.AST) -> Fact | None:
        known = self._observation.fact(self._unit, node)
        return None if known is None or known.is_wild else known

    def is_operation(self, node: ast.AST) -> bool:
        """Whether an expression computes tensors of what its parts give, and nothing else happens."""
        if node not in self._ops:
            self._ops[node] = self._unit.numbers[node] not in self._broken and self._is_operation(node)
        return self._ops[node]

    def _is_operation(self, node: ast.AST) -> bool:
        known = self._fact(node)
        if known is None or not known.kinds or not all(map(is_tensors, known.kinds)):
            return False
        if isinstance(node, ast.Call):
            return self._is_pure_call(node)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) and any(
            kind[0] != "tensor" for kind in known.kinds
        ):
            return False
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) and self._is_of_numbers(node):
            return False  # there is no kernel for it, and Python computes it of the number
        if isinstance(node, ast.BinOp):
            return self._may_have(node.left) and self._may_have(node.right)
        if isinstance(node, ast.UnaryOp):
            return self._may_have(node.operand)
        if isinstance(node, ast.Compare):
            return len(node.ops) == 1 and self._may_have(node.left) and self._may_have(node.comparators[0])
        if isinstance(node, ast.Subscript):
            return (
                self._is_of_tensor(node.value) and self._may_have(node.value) and self._may_have(node.slice)
            )
        if isinstance(node, ast.Attribute):
            return (
                self._is_of_tensor(node.value)
                and self._may_have(node.value)
                and node.attr not in ("grad", "data")
            )
        return False

    def _is_of_numbers(self, node: ast.AST) -> bool:
        """Whether an expression is arithmetic of whole numbers alone, some of which are tensors."""
        return all(
            (known := self._fact(one)) is not None
            and all(kind == ("tensor", "int64", ()) or kind == ("scalar", int) for kind in known.kinds)
            for one in ast.iter_child_nodes(node)
            if isinstance(one, ast.expr) and not isinstance(one, ast.Constant)
        )

    def _is_of_tensor(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor, or what an operation gives; parts of other values are leaves."""
        known = self._fact(node)
        is_tensor = known is not None and all(kind[0] == "tensor" for kind in known.kinds)
        return is_tensor or self.is_operation(node)

    def _is_pure_call(self, node: ast.Call) -> bool:
        known = self._fact(node.func)
        if known is None or not known.objects or is_in_place(node):
            return False
        if any(kind[0] != "object" for kind in known.kinds):
            return False
        if len(known.objects) > 8 or any(one.arg in ("out", None) for one in node.keywords):
            return False
        if not all(map(self._purity.is_pure, known.objects.values())):
            return False
        if isinstance(node.func, ast.Attribute) and any(
            isinstance(one, tuple) for one in known.objects.values()
        ):
            if not self._may_have(node.func.value):
                return False
        return all(self._may_have(one) for one in (*node.args, *(one.value for one in node.keywords)))

    def _may_have(self, node: ast.AST) -> bool:
        """Whether an expression may be a part of a region: within it, or as a leaf."""
        if self._is_within(node):
            return all(map(self._may_have, _parts(node)))
        known = self._fact(node)
        if known is None:
            return isinstance(node, ast.Constant)
        return are_operands(known.kinds)

    def _is_within(self, node: ast.AST) -> bool:
        """Whether a region evaluates an expression itself; its parts may be leaves all the same."""
        if isinstance(node, ast.Constant | ast.Tuple | ast.List | ast.Starred | ast.Slice):
            return True
        if self.is_operation(node):
            return True
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.operand, ast.Constant)
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name):
            return self._is_global(node) or self._is_path(node) or self._is_size(node)
        if isinstance(node, ast.Call):  # x.size(0)
            known = self._fact(node.func)
            if known is not None and list(known.objects.values()) in ([float], [int]):  # float("-inf")
                return bool(node.args) and all(isinstance(one, ast.Constant) for one in node.args)
            is_size = known is not None and all(map(is_size_method, known.objects.values())) and known.objects
            return bool(is_size) and isinstance(node.func, ast.Attribute) and self._may_have(node.func.value)
        if isinstance(node, ast.BinOp):  # of sizes
            return all(isinstance(one, ast.Constant) or (not isinstance(one, ast.Name) and self._is_within(one)) for one in (node.left, node.right))  # fmt: skip
        return False

    def _is_global(self, node: ast.AST) -> bool:
        """Whether an expression is a function or a constant of a module of Python, or of this file."""
        if isinstance(node, ast.Attribute):
            known = self._fact(node.value)
            of_module = (
                known is not None and len(known.objects) == 1 and all(map(is_module, known.objects.values()))
            )
            return of_module and self._is_global(node.value)
        if not isinstance(node, ast.Name) or node.id in self._bound:
            return False
        known = self._fact(node)
        if known is None or len(known.objects) != 1:
            return False
        value = next(iter(known.objects.values()))
        return is_module(value) or is_torch_function(value) or hasattr(value, "__code__")

    def _is_path(self, node: ast.AST) -> bool:
        """Whether an expression is a fixed part of a module, as ``self.layers[0].weight``."""
        import torch

        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Attribute) and self._is_path(node.value)  # fmt: skip
        if not isinstance(node, ast.Attribute) or node.attr in self._purity.assigned:
            return False
        known = self._fact(node)
        if known is None or any(kind[0] in ("other", "list") for kind in known.kinds):
            return False
        base = self._fact(node.value)
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
        known = self._fact(node.value)
        return (
            known is not None
            and all(kind[0] == "tensor" for kind in known.kinds)
            and self._may_have(node.value)
        )

    def leaves(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the leaves of an expression of a region, in the order in which Python evaluates them."""
        if not self._is_within(node):
            yield node
            return
        if isinstance(node, ast.Call):
            yield from self._leaves_of_function(node.func)
            for one in (*node.args, *(keyword.value for keyword in node.keywords)):
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
        known = self._fact(node)
        is_method = known is not None and any(isinstance(one, tuple) for one in known.objects.values())
        if isinstance(node, ast.Attribute) and is_method:
            yield from self.leaves(node.value)
        elif self._is_global(node):
            return
        elif self._is_path(node):
            yield _base(node)
        else:
            yield node

    # ---- Statements ----

    def _function(self, node: Any) -> None:
        if isinstance(node, ast.Lambda):
            self._expressions(node.body)
        else:
            self._body(node.body, node, False)

    def _body(self, body: Sequence[ast.stmt], function: ast.AST, in_try: bool) -> None:
        at = 0
        while at < len(body):
            run = _Run(self, function)
            while at < len(body) and run.take(body[at]) and not in_try:
                at += 1
            if in_try and run.statements:
                at += 1
            hoisted: set[ast.AST] = set()
            if run.statements and at < len(body) and not run.is_ended:
                hoisted = run.hoist(body[at])
            if run.statements:
                self._add_run(run)
                if not hoisted:
                    continue
            if at < len(body):
                self._statement(body[at], function, in_try, hoisted)
                at += 1

    def _add_run(self, run: _Run) -> None:
        numbers = self._unit.numbers
        leaves = _distinct(run.leaves)
        outputs = run.outputs(self._unit)
        if len(leaves) > _MOST_LEAVES:
            for one in run.statements:
                self._expressions(one)
            return
        self.regions.append(
            Region(
                tuple(numbers[one] for one in run.statements),
                tuple(numbers[one] for one in run.hoisted),
                tuple(numbers[one] for one in leaves),
                tuple(outputs),
            )
        )
        for leaf in leaves:
            self._expressions(leaf)

    def _statement(self, node: ast.stmt, function: ast.AST, in_try: bool, without: set[ast.AST]) -> None:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):  # what a class assigns are its attributes
            return
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._body(value, function, in_try or isinstance(node, ast.Try))
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.ExceptHandler):
                    self._body(one.body, function, in_try)
                elif isinstance(one, ast.match_case):
                    self._body(one.body, function, in_try)
                    if one.guard is not None:
                        self._expressions(one.guard)
                elif isinstance(one, ast.AST):
                    self._expressions(one, without)

    def _expressions(self, node: ast.AST, without: set[ast.AST] = frozenset()) -> None:  # type: ignore[assignment]
        """Add the largest operations of an expression as regions of their own."""
        if node in without or isinstance(node, _FUNCTIONS):
            return
        if isinstance(node, ast.expr) and self.is_operation(node):
            leaves = _distinct(list(self.leaves(node)))
            if leaves and len(leaves) <= _MOST_LEAVES:
                numbers = self._unit.numbers
                self.regions.append(Region((), (numbers[node],), tuple(numbers[one] for one in leaves), ()))
                for leaf in leaves:
                    self._expressions(leaf)
                return
            if not leaves:
                self.regions.append(Region((), (self._unit.numbers[node],), (), ()))
                return
        for one in ast.iter_child_nodes(node):
            self._expressions(one, without)


class _Run:
    """Statements that follow each other and are one region."""

    def __init__(self, forming: Forming, function: ast.AST) -> None:
        self._forming, self._function = forming, function
        self.statements: list[ast.stmt] = []
        self.hoisted: list[ast.expr] = []
        self.leaves: list[ast.AST] = []
        self.is_ended = False
        self._assigned: dict[str, None] = {}
        self._internal: set[ast.AST] = set()

    def take(self, node: ast.stmt) -> bool:
        """Add a statement, if it may be one of these."""
        if self.is_ended or self._unit_number(node) in self._forming._broken:
            return False
        if isinstance(node, ast.Return):
            targets: list[ast.expr] = []
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            return False
        if node.value is None or not self._is_whole(node.value):
            return False
        names: list[str] = []
        for target in targets:
            plain = [target] if isinstance(target, ast.Name) else list(getattr(target, "elts", [None]))
            if not all(isinstance(one, ast.Name) for one in plain):
                return False
            names += [one.id for one in plain]
        if len(targets) > 1 or not self._may_add(node.value):
            return False
        self._add(node.value)
        self._assigned |= dict.fromkeys(names)
        self.statements.append(node)
        self.is_ended = isinstance(node, ast.Return)
        return True

    def hoist(self, node: ast.stmt) -> set[ast.AST]:
        """Add what the next statement evaluates first, where it follows from these."""
        value = getattr(node, "test", None) if isinstance(node, ast.If) else getattr(node, "value", None)
        value = node.iter if isinstance(node, ast.For) else value
        if not isinstance(value, ast.expr) or isinstance(node, ast.AsyncFor):
            return set()
        if not isinstance(
            node, ast.If | ast.For | ast.Expr | ast.Assign | ast.AnnAssign | ast.Return | ast.AugAssign
        ):
            return set()
        found, _ = self._first(value)
        if found is None or not self._may_add(found):
            return set()
        names = {one.id for one in ast.walk(found) if isinstance(one, ast.Name)}
        if not names & set(self._assigned):
            return set()
        self._add(found)
        self.hoisted.append(found)
        return {found}

    def outputs(self, unit: Unit) -> list[str]:
        """Return the variables that are read elsewhere."""
        read = {
            one.id
            for one in ast.walk(self._function)
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Store) and one not in self._internal
        }
        if read & _READ_ALL:
            return list(self._assigned)
        augmented = [one.target for one in ast.walk(self._function) if isinstance(one, ast.AugAssign)]
        read |= {one.id for one in augmented if isinstance(one, ast.Name) and one not in self._internal}
        shared = {
            name
            for one in ast.walk(self._function)
            if isinstance(one, ast.Global | ast.Nonlocal)
            for name in one.names
        }
        return [name for name in self._assigned if name in read | shared]

    def _unit_number(self, node: ast.AST) -> int:
        return self._forming._unit.numbers[node]

    def _is_whole(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Tuple) and node.elts:
            parts = [one for one in node.elts if self._forming.is_operation(one)]
            return bool(parts) and all(self._forming._may_have(one) for one in node.elts)
        return self._forming.is_operation(node)

    def _may_add(self, node: ast.expr) -> bool:
        """Whether none of an expression's leaves reads what a statement before it assigns."""
        for leaf in self._forming.leaves(node):
            if isinstance(leaf, ast.Name):
                continue
            names = {one.id for one in ast.walk(leaf) if isinstance(one, ast.Name)}
            if names & set(self._assigned):
                return False
        count = len(_distinct([*self.leaves, *self._forming.leaves(node)]))
        return count <= _MOST_LEAVES and bool(count)

    def _add(self, node: ast.expr) -> None:
        for leaf in self._forming.leaves(node):
            if isinstance(leaf, ast.Name) and leaf.id in self._assigned:
                continue
            self.leaves.append(leaf)
        leaves = set(self.leaves)
        waiting: list[ast.AST] = [node]
        while waiting:
            one = waiting.pop()
            if one in leaves and not isinstance(one, ast.Name):
                continue
            if isinstance(one, ast.Name) and one.id in self._assigned:
                self._internal.add(one)
            waiting += ast.iter_child_nodes(one)

    def _first(self, node: ast.expr) -> tuple[ast.expr | None, bool]:
        """Return the operation that is evaluated first, and whether what is evaluated before is of no effect."""
        if self._forming.is_operation(node):
            return node, True
        if isinstance(node, ast.Name | ast.Constant):
            return None, True
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            parts = [node.func, *node.args]
        elif isinstance(
            node, ast.Attribute | ast.UnaryOp | ast.Subscript | ast.BinOp | ast.Compare | ast.Tuple | ast.List
        ):
            parts = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        else:
            return None, False
        for one in parts:
            found, is_plain = self._first(one)
            if found is not None or not is_plain:
                return found, is_plain
        return None, not isinstance(node, ast.Call)


def _parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of an expression in the order in which they are evaluated."""
    if isinstance(node, ast.Call):
        function = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return (
            [*node.args, *(one.value for one in node.keywords)]
            if not function
            else [*node.args, *(one.value for one in node.keywords)]
        )
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]


def _base(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _distinct(leaves: Sequence[ast.AST]) -> list[ast.AST]:
    """Return leaves, each variable once."""
    found: dict[Any, ast.AST] = {}
    for one in leaves:
        found.setdefault(one.id if isinstance(one, ast.Name) else one, one)
    return list(found.values())


def _bound_names(node: ast.AST) -> set[str]:
    """Return the names that a unit assigns somewhere, and are no global ones there."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            found.add(one.id)
        elif isinstance(one, ast.arg):
            found.add(one.arg)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and one is not node:
            found.add(one.name)
        elif isinstance(one, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and one.name:
            found.add(one.name)
        elif isinstance(one, ast.MatchMapping) and one.rest:
            found.add(one.rest)
        elif isinstance(one, ast.alias):
            found.add((one.asname or one.name).split(".")[0])
        elif isinstance(one, ast.Global):
            found |= set(one.names)
    return found
