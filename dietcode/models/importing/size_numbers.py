"""Numbers that a model computes of sizes, as ``1.0 / x.shape[1]``: scalars of the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.context import Importer

# Python's function, the graph's operator and Python's again, for operands that are numbers.
_OPERATORS: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("add", operator.add),
    "sub": ("sub", operator.sub),
    "mul": ("mul", operator.mul),
    "truediv": ("div", operator.truediv),
    "pow": ("pow", operator.pow),
    "pow_by_natural": ("pow", operator.pow),
    "neg": ("neg", operator.neg),
    "_sym_sqrt": ("sqrt", lambda x: x**0.5),
    "sym_float": ("cast", float),
}


def is_size_number(node: Any) -> bool:
    """Whether a node is a number in floating point that depends on sizes."""
    return type(node.meta.get("val")).__name__ == "SymFloat"


def import_size_number(importer: Importer, node: Any) -> Value:
    """Return a number in floating point that follows from sizes: a scalar of float32, or a constant.

    Raises
    ------
    GraphError
        It is computed by another function.
    """
    word = getattr(node.target, "__name__", str(node.target))
    if word not in _OPERATORS:
        allowed = "+, -, *, /, ** and square roots"
        raise GraphError(f"a number that is computed of sizes by {word}; allowed: {allowed}")
    name, compute = _OPERATORS[word]
    operands = [_scalar(importer, one) for one in node.args]
    if not any(isinstance(one, str) for one in operands):
        return float(compute(*operands))
    if name == "cast":
        (value,) = operands
        return str(value)
    return importer.add(name, *operands)


def _scalar(importer: Importer, given: Any) -> Any:
    """Return an operand: a scalar of float32, or a number."""
    found = importer.values[given.name] if hasattr(given, "op") and hasattr(given, "meta") else given
    if isinstance(found, Extent):
        found = importer.number(found)
    return importer.cast(found, "float32") if isinstance(found, str) else found
