"""PyTorch's symbolic sizes as extents."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from dietcode.graph.extent import Extent, floor_divide, larger, remainder, smaller

_TWO: Mapping[str, Callable[[Extent, Extent], Extent]] = {
    **dict.fromkeys(("FloorDiv", "CleanDiv"), floor_divide),
    **dict.fromkeys(("Mod", "PythonMod"), remainder),
}
_ROUNDED = ("TruncToInt", "FloorToInt")
_CHOICES: Mapping[str, Callable[[Extent, Extent], Extent]] = {"Min": smaller, "Max": larger}


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
        if kind == "Pow" and expression.args[1].is_Integer and int(expression.args[1]) > 0:
            base = self._of(expression.args[0])
            return reduce(operator.mul, [base] * int(expression.args[1]))
        if kind == "Mul" and any(one.is_Rational and not one.is_Integer for one in expression.args):
            return self._of_fraction(expression)
        if kind in ("Add", "Mul"):
            parts = [self._of(one) for one in expression.args]
            return reduce(operator.add if kind == "Add" else operator.mul, parts)
        if kind in _ROUNDED and type(expression.args[0]).__name__ == "IntTrueDiv":  # int(L / 2)
            return floor_divide(*(self._of(one) for one in expression.args[0].args))
        if kind in _TWO and len(expression.args) == 2:
            return _TWO[kind](*(self._of(one) for one in expression.args))
        if kind in _CHOICES:
            return reduce(_CHOICES[kind], [self._of(one) for one in expression.args])
        raise UnknownSizeError(str(expression))

    def _of_fraction(self, expression: Any) -> Extent:
        numerator, denominator = expression.as_numer_denom()
        return floor_divide(self._of(numerator), self._of(denominator))
