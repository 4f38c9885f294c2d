"""What is left of a graph where some inputs are zeros: values that are one number everywhere are followed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dietcode.graph.graph import Graph, Node, Value
from dietcode.graph.tensor_type import TensorType
from dietcode.recursion.kinds import ELEMENTWISE
from dietcode.runtime.host_operators import HOST

_KEEPING = frozenset({"reshape", "transpose", "expand", "slice", "flip", "take", "rotate"})


def with_zeros(graph: Graph, zeros: Iterable[str]) -> Graph:
    """Return the graph whose values `zeros`, inputs or not, are zeros; other values keep their names."""
    return _WithZeros(graph, zeros).run()


class _WithZeros:
    def __init__(self, old: Graph, zeros: Iterable[str]) -> None:
        self._old = old
        self._numbers: dict[str, float] = dict.fromkeys(zeros, 0.0)
        self._names: dict[str, str] = {}
        self._new = Graph(old.name, old.ranges)
        for name, type_ in old.inputs.items():
            if name not in self._numbers:
                self._new.add_input(name, type_)
        for name, type_ in old.weights.items():
            self._new.add_weight(name, type_)
        self._reserved = set(old.types)
        self._source = ""

    def run(self) -> Graph:
        for node in self._old.nodes:
            self._source = node.source
            self._write(node)
        self._new.outputs = [self._name(one) for one in self._old.outputs]
        self._new.without_unused()
        return self._new

    def _write(self, node: Node) -> None:
        if node.result in self._numbers:
            return
        number = self._number(node)
        if number is not None:
            self._numbers[node.result] = number
            return
        same = self._same(node)
        if same is not None:
            self._names[node.result] = self._expanded(same, self._old.types[node.result])
            return
        operands = [self._operand(node, at) for at in range(len(node.operands))]
        attributes = dict(node.attributes)
        if node.operator == "where":  # both values may have become numbers, which have no dtype
            attributes["dtype"] = self._old.types[node.result].dtype
        self._new.add(node.operator, *operands, source=node.source, name=node.result, **attributes)

    def _operand(self, node: Node, at: int) -> Value:
        operand = node.operands[at]
        if not isinstance(operand, str):
            return operand
        if operand in self._numbers and node.operator in ELEMENTWISE and self._takes_number(node, at):
            return self._numbers[operand]
        return self._name(operand)

    def _takes_number(self, node: Node, at: int) -> bool:
        """Whether a node keeps its shape where one operand becomes a number."""
        if node.operator == "where" and at == 0:
            return False
        wanted = self._old.types[node.result].shape
        others = (one for k, one in enumerate(node.operands) if k != at and isinstance(one, str))
        return any(self._old.types[one].shape == wanted and one not in self._numbers for one in others)

    def _name(self, value: str) -> str:
        """Return a value of the new graph; a number is written out."""
        if value in self._numbers and value not in self._names:
            type_ = self._old.types[value]
            self._names[value] = self._fresh(
                "full", shape=type_.shape, value=self._numbers[value], dtype=type_.dtype
            )
        return self._names.get(value, value)

    def _fresh(self, operator: str, *operands: Value, **attributes: Any) -> str:
        number = len(self._reserved)
        while f"v{number}" in self._reserved:
            number += 1
        self._reserved.add(f"v{number}")
        return self._new.add(operator, *operands, source=self._source, name=f"v{number}", **attributes)

    def _expanded(self, value: str, type_: TensorType) -> str:
        shape = self._new.types[value].shape
        return value if shape == type_.shape else self._fresh("expand", value, shape=type_.shape)

    def _number(self, node: Node) -> float | None:
        """Return the number that a result is everywhere, or None."""
        known = [self._numbers.get(one) if isinstance(one, str) else one for one in node.operands]
        if node.operator == "full" or _is_zero(node.operator, known):
            return float(node.attributes.get("value", 0.0))
        if node.operator in _KEEPING:
            return known[0]
        if node.operator == "where" and known[0] is not None:
            known = [known[1 if known[0] else 2]]
        if not known or any(one is None for one in known):
            return None
        if node.operator == "sum":
            return self._summed(node, float(known[0] or 0))
        if node.operator not in ("max", "min", "mean", "concat", "where"):
            return self._computed(node, known)
        return known[0] if len(set(known)) == 1 else None

    def _summed(self, node: Node, number: float) -> float:
        """Return the sum of as many equal numbers as go into one element."""
        many, left = (
            math.prod(e.constant for e in self._old.types[name].shape if e.is_constant)
            for name in (str(node.operands[0]), node.result)
        )
        return number * many / left

    def _computed(self, node: Node, known: list[Any]) -> float | None:
        if node.operator not in ELEMENTWISE or self._old.types[node.result].dtype != "float32":
            return None
        arrays = [
            np.asarray(one, np.float32) if isinstance(name, str) else one
            for name, one in zip(node.operands, known, strict=True)
        ]
        if any(isinstance(n, str) and self._old.types[n].dtype != "float32" for n in node.operands):
            return None
        number = float(HOST[node.operator](arrays, dict(node.attributes))[0])
        return number if math.isfinite(number) else None

    def _same(self, node: Node) -> str | None:
        """Return the value of the new graph that a result is, up to its shape, or None."""
        known = [self._numbers.get(one) if isinstance(one, str) else None for one in node.operands]
        if node.operator == "where" and known[0] is not None:
            return self._tensor(node.operands[1 if known[0] else 2])
        if node.operator == "add" and 0 in known:
            return self._tensor(node.operands[1 - known.index(0)])
        if node.operator == "sub" and known[1] == 0:
            return self._tensor(node.operands[0])
        if node.operator in ("mul", "div") and 1 in known[1 if node.operator == "div" else 0 :]:
            at = 1 if known[1] == 1 else 0
            return self._tensor(node.operands[1 - at])
        if node.operator == "linear" and known[0] == 0 and len(known) > 2:
            return self._tensor(node.operands[2])
        return None

    def _tensor(self, value: Value) -> str | None:
        return self._name(value) if isinstance(value, str) else None


def _is_zero(operator: str, operands: list[Any]) -> bool:
    """Whether a result is zeros, whatever the operands are that are None here."""
    return 0 in operands and (operator in ("mul", "matmul") or (operator == "linear" and len(operands) == 2))
