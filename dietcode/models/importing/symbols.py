"""PyTorch's symbolic sizes as extents."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from dietcode.graph.extent import Extent, floor_divide, larger, remainder, smaller

_FUNCTIONS: Mapping[str, Callable[[Extent, Extent], Extent]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": floor_divide,
    "CleanDiv": floor_divide,
    "Mod": remainder,
    "PythonMod": remainder,
    "Min": smaller,
    "Max": larger,
}


class UnknownSizeError(ValueError):
    """A size that no extent is equal to, as one that depends on values; the message is its text."""


class Symbols:
    """The dimensions of a model, and sizes that follow from them.

    Parameters
    ----------
    names : mapping of str to str
        The name of a dimension by PyTorch's symbol.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def extent(self, size: Any) -> Extent:
        """Return a size of PyTorch's, an int or a SymInt, as an extent.

        Raises
        ------
        UnknownSizeError
            It depends on values, or is computed in a way that extents do not have.
        """
        return Extent.of(size) if isinstance(size, int) else self._of(size.node.expr)

    def _of(self, expression: Any) -> Extent:
        if expression.is_Integer:
            return Extent.of(int(expression))
        if not expression.is_Symbol:
            return self._of_function(expression, type(expression).__name__)
        if expression.name not in self._names:
            raise UnknownSizeError(str(expression))
        return Extent.of(self._names[expression.name])

    def _of_function(self, expression: Any, kind: str) -> Extent:
        if kind == "Mul" and any(one.is_Rational and not one.is_Integer for one in expression.args):
            numerator, denominator = expression.as_numer_denom()
            return floor_divide(self._of(numerator), self._of(denominator))
        if kind == "Pow" and expression.args[1].is_Integer and int(expression.args[1]) > 0:
            return reduce(operator.mul, [self._of(expression.args[0])] * int(expression.args[1]))
        if kind not in _FUNCTIONS:
            raise UnknownSizeError(str(expression))
        return reduce(_FUNCTIONS[kind], [self._of(one) for one in expression.args])
