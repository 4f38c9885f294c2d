"""Regions of a unit: the largest pieces of straight-line tensor code."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from dietcode.frontends.python.observing import Observation
from dietcode.frontends.python.operations import Operations, has_tensor
from dietcode.frontends.python.purity import Purity
from dietcode.programs.module import concurrent
from dietcode.runtime.recorded.regions import SourceRegion
from dietcode.runtime.recorded.units import SourceUnit

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MOST_LEAVES = 30
_NOTHING: frozenset[ast.AST] = frozenset()
_READ_ALL = frozenset({"locals", "vars", "dir", "eval", "exec"})  # these read variables by other names


class Forming:
    """Finds the regions of a unit.

    Parameters
    ----------
    observation : Observation
    purity : Purity
    unit : SourceUnit
    broken : set of int
        Nodes that no region may have: they, or what they call, cannot be exported.

    Attributes
    ----------
    regions : list of SourceRegion
    concurrent, instances : list of int
        As `UnitParts` has them.
    """

    def __init__(self, observation: Observation, purity: Purity, unit: SourceUnit, broken: set[int]) -> None:
        self._observation, self._unit = observation, unit
        self._operations = Operations(observation, purity, unit, broken)
        self.regions: list[SourceRegion] = []
        self.concurrent: list[int] = []
        self.instances: list[int] = []

    def run(self) -> Forming:
        """Find them."""
        for node in self._unit.nodes:
            if isinstance(node, ast.Lambda):
                self._expressions(node.body)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._body(node.body, node, False)
            elif isinstance(node, ast.Call):
                self._note_call(node)
        return self

    def _note_call(self, node: ast.Call) -> None:
        """Note a call of `dietcode.concurrent`, or of `isinstance` with what may have a tensor."""
        known = self._operations.fact(node.func)
        functions = [] if known is None else list(known.objects.values())
        if functions == [concurrent]:
            self.concurrent.append(self._unit.numbers[node])
        elif functions == [isinstance] and len(node.args) == 2:
            given = self._observation.fact(self._unit, node.args[0])
            if given is not None and (given.is_wild or any(map(has_tensor, given.kinds))):
                self.instances.append(self._unit.numbers[node])

    def _body(self, body: Sequence[ast.stmt], function: ast.AST, in_try: bool) -> None:
        at = 0
        while at < len(body):
            run = _Run(self._operations, function)
            while at < len(body) and run.take(body[at]) and not in_try:
                at += 1
            if in_try and run.statements:
                at += 1
            hoisted: AbstractSet[ast.AST] = _NOTHING
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
        leaves = _distinct(run.leaves)
        if len(leaves) > _MOST_LEAVES:
            for one in run.statements:
                self._expressions(one)
        else:
            self._add(run.statements, run.hoisted, leaves, run.outputs())

    def _add(
        self,
        statements: Sequence[ast.stmt],
        hoisted: Sequence[ast.expr],
        leaves: Sequence[ast.AST],
        outputs: Sequence[str],
    ) -> None:
        """Add a region, and what its leaves have."""
        numbers = self._unit.numbers
        self.regions.append(
            SourceRegion(
                tuple(numbers[one] for one in statements),
                tuple(numbers[one] for one in hoisted),
                tuple(numbers[one] for one in leaves),
                tuple(outputs),
            )
        )
        for leaf in leaves:
            self._expressions(leaf)

    def _statement(
        self, node: ast.stmt, function: ast.AST, in_try: bool, without: AbstractSet[ast.AST]
    ) -> None:
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

    def _expressions(self, node: ast.AST, without: AbstractSet[ast.AST] = _NOTHING) -> None:
        """Add the largest operations of an expression as regions of their own."""
        if node in without or isinstance(node, _FUNCTIONS):
            return
        if isinstance(node, ast.expr) and self._operations.is_operation(node):
            leaves = _distinct(list(self._operations.leaves(node)))
            if len(leaves) <= _MOST_LEAVES:
                self._add((), (node,), leaves, ())
                return
        for one in ast.iter_child_nodes(node):
            self._expressions(one, without)


class _Run:
    """Statements that follow each other and are one region."""

    def __init__(self, operations: Operations, function: ast.AST) -> None:
        self._operations, self._function = operations, function
        self.statements: list[ast.stmt] = []
        self.hoisted: list[ast.expr] = []
        self.leaves: list[ast.AST] = []
        self.is_ended = False
        self._assigned: dict[str, None] = {}
        self._internal: set[ast.AST] = set()

    def take(self, node: ast.stmt) -> bool:
        """Add a statement, if it may be one of these."""
        if self.is_ended or self._operations.is_broken(node):
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

    def outputs(self) -> list[str]:
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

    def _is_whole(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Tuple) and node.elts:
            parts = [one for one in node.elts if self._operations.is_operation(one)]
            return bool(parts) and all(self._operations.may_have(one) for one in node.elts)
        return self._operations.is_operation(node)

    def _may_add(self, node: ast.expr) -> bool:
        """Whether none of an expression's leaves reads what a statement before it assigns."""
        for leaf in self._operations.leaves(node):
            if isinstance(leaf, ast.Name):
                continue
            names = {one.id for one in ast.walk(leaf) if isinstance(one, ast.Name)}
            if names & set(self._assigned):
                return False
        count = len(_distinct([*self.leaves, *self._operations.leaves(node)]))
        return count <= _MOST_LEAVES and bool(count)

    def _add(self, node: ast.expr) -> None:
        for leaf in self._operations.leaves(node):
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
        """Return the operation that is evaluated first, and whether what is before it has no effect."""
        if self._operations.is_operation(node):
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


def _distinct(leaves: Sequence[ast.AST]) -> list[ast.AST]:
    """Return leaves, each variable once."""
    found: dict[Any, ast.AST] = {}
    for one in leaves:
        found.setdefault(one.id if isinstance(one, ast.Name) else one, one)
    return list(found.values())
