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


# Of whole numbers, where no extent is what they give.
_WHOLE: dict[str, str] = {
    **{"add": "add", "sub": "sub", "mul": "mul", "neg": "neg", "pow": "pow", "pow_by_natural": "pow"},
    **{"floordiv": "floor_divide", "mod": "remainder", "lshift": "pow", "rshift": "shift_right"},
    **{"and_": "bit_and", "or_": "bit_or", "round": "round", "floor": "floor", "ceil": "ceil"},
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


def import_whole_number(importer: Importer, node: Any) -> str | None:
    """Return a whole number of sizes that is no extent, as ``2 ** x.shape[1]``: a scalar.

    Powers, and what follows from them, are of float64, as they are soon too large for whole numbers; all else
    is of int64.

    Returns
    -------
    str or None
        None where another function computes it, and where it follows from values.
    """
    word = getattr(node.target, "__name__", "")
    name, symbols = _WHOLE.get(word), node.meta["val"].node.expr.free_symbols
    if name is None or any(map(importer.symbols.is_size, symbols)):
        return None
    operands = [importer.value(one) for one in node.args if one is not None]
    if name in ("round", "floor", "ceil"):
        return str(importer.cast(importer.add(name, *operands), "int64")) if len(operands) == 1 else None
    is_large = name == "pow" or any(
        isinstance(one, str) and importer.type(one).dtype == "float64" for one in operands
    )
    scalars = [_whole_scalar(importer, one, "float64" if is_large else "int64") for one in operands]
    if word == "lshift":
        two = _whole_scalar(importer, 2, "float64")
        return importer.add("mul", scalars[0], importer.add("pow", two, scalars[1]))
    return importer.add(name, *scalars)


def _whole_scalar(importer: Importer, given: Any, dtype: str) -> str:
    if isinstance(given, str):
        return str(importer.cast(given, dtype))
    return importer.add("full", shape=(), value=given, dtype=dtype)


def _scalar(importer: Importer, given: Any) -> Any:
    """Return an operand: a scalar of float32, or a number."""
    found = importer.values[given.name] if hasattr(given, "op") and hasattr(given, "meta") else given
    if isinstance(found, Extent):
        found = importer.number(found)
    return importer.cast(found, "float32") if isinstance(found, str) else found
