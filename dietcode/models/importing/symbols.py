"""PyTorch's symbolic sizes as extents."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from dietcode.graph.extent import Extent, floor_divide, larger, remainder, smaller
from dietcode.graph.tensor_type import GraphError

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
_ROUNDED = ("TruncToInt", "FloorToInt", "CeilToInt")
_MAX_DENOMINATOR, _MAX_NUMERATOR = 1 << 10, 1 << 20
_MOST_SIZES = 1 << 16  # of a range that are tried one by one


class UnknownSizeError(ValueError):
    """A size that no extent is equal to, as one that depends on values; the message is its text."""


def _is_quotient(expression: Any) -> bool:
    name, arguments = type(expression).__name__, expression.args
    return name == "FloatTrueDiv" and bool(arguments[1].is_Float or arguments[1].is_Integer)


def _signed_size(expression: Any) -> tuple[int, Any] | None:
    """Return 1 or -1 and a size, of what is one in floating point; None of anything else."""
    factor = 1
    if type(expression).__name__ == "Mul" and len(expression.args) == 2 and expression.args[0] == -1:
        factor, expression = -1, expression.args[1]
    return (factor, expression.args[0]) if type(expression).__name__ == "ToFloat" else None


def _fraction_of_floats(factor: float, low: int, high: int) -> Fraction:
    """Return a simple fraction r such that floor(r·L) equals the floor of the float product for all L.

    For each L, r is at least floor(factor·L)/L, and less than that of the next whole number.
    """
    least, limit = Fraction(0), Fraction(_MAX_NUMERATOR + 1)
    for size in range(low, high + 1):
        whole = int(factor * size)
        least, limit = max(least, Fraction(whole, size)), min(limit, Fraction(whole + 1, size))
    for digits in range(21):
        found = Fraction(factor).limit_denominator(1 << digits)
        if least <= found < limit:
            return found
    if least < limit:
        return least
    raise GraphError(
        f"a size of {factor} times one of {low}…{high}, whose products floats round up and down; write it in "
        "whole numbers, as size=x.shape[2] * 7 // 10"
    )


def _whole_number(value: int) -> Any:
    from torch.fx.experimental.symbolic_shapes import sympy

    return sympy.Integer(value)


class Symbols:
    """The dimensions of a model, and sizes that follow from them.

    Parameters
    ----------
    names : mapping of str to str
        The name of a dimension by PyTorch's symbol.
    bounds : mapping of symbol to ValueRanges
        Of the program.
    sums : mapping of str to expression, optional
        What is put in the place of a symbol.
    """

    def __init__(
        self, names: Mapping[str, str], bounds: Mapping[Any, Any], sums: Mapping[str, Any] | None = None
    ) -> None:
        self._names, self._bounds, self._sums = dict(names), bounds, dict(sums or {})
        self._extents: dict[str, Extent] = {}
        self.refused: set[str] = set()  # sizes that have no bound, which is said where they are set

    def add(self, symbol: Any, name: str) -> None:
        """Add a size that a node sets."""
        self._names[symbol.name] = name

    def equate(self, symbol: Any, size: Any) -> None:
        """Let a size that a node sets be another one, an int or a SymInt, wherever it is."""
        self._sums[symbol.name] = size.node.expr if hasattr(size, "node") else _whole_number(size)

    def define(self, size: Any, extent: Extent) -> None:
        """Let a size of a node's result be an extent, where PyTorch has a new symbol or an expression."""
        expression = getattr(getattr(size, "node", None), "expr", None)
        if expression is not None and (self.is_new(size) or not expression.is_Symbol):
            self._extents[str(expression)] = extent

    def is_new(self, size: Any) -> bool:
        """Whether a size is a symbol that nothing is known of."""
        expression = getattr(getattr(size, "node", None), "expr", None)
        return expression is not None and bool(expression.is_Symbol) and not self.knows(expression)

    def refuse(self, fake: Any) -> None:
        """Refuse the new sizes of a node which is not there itself."""
        sizes = [fake, *getattr(fake, "shape", ())]
        self.refused.update(one.node.expr.name for one in sizes if self.is_new(one))

    def knows(self, symbol: Any) -> bool:
        """Whether a symbol is a dimension."""
        return any(symbol.name in known for known in (self._names, self._sums, self._extents))

    def is_sum(self, expression: Any) -> bool:
        """Whether an expression is a symbol for which a sum of others is put."""
        return bool(expression.is_Symbol) and expression.name in self._sums

    def is_refused(self, text: object) -> bool:
        """Whether what a message names is, or follows from, a size that was refused where it is set."""
        return bool(self.refused & set(re.findall(r"u\d+", str(text))))

    def is_size(self, symbol: Any) -> bool:
        """Whether a symbol is told by values, not by the shapes of inputs; PyTorch calls these ``u0``."""
        return str(symbol.name).startswith("u")

    def range_of(self, symbol: Any) -> tuple[int, int | None]:
        """Return the least and the greatest value that the program's checks leave; None for no bound."""
        found = self._bounds.get(symbol)
        low, high = (str(found.lower), str(found.upper)) if found is not None else ("0", "")
        least = int(low) if low.lstrip("-").isdigit() else -(2**31)
        return least, int(high) if high.isdigit() and int(high) < 2**31 - 1 else None

    def extent(self, size: Any) -> Extent:
        """Return a size of PyTorch's, an int or a SymInt, as an extent.

        Raises
        ------
        UnknownSizeError
            It depends on values, or is computed in a way that extents do not have.
        """
        return Extent.of(size) if isinstance(size, int) else self._of(size.node.expr)

    def extent_of(self, expression: Any) -> Extent:
        """Return an expression of sympy's as an extent; raises as `extent` does."""
        return self._of(expression)

    def text(self, expression: Any) -> str:
        """Return an expression of sympy's in words, with the names of dimensions."""
        return re.sub(r"\bs\d+\b", lambda found: self._names.get(found[0], found[0]), str(expression))

    def _of(self, expression: Any) -> Extent:
        if expression.is_Integer:
            return Extent.of(int(expression))
        if str(expression) in self._extents:
            return self._extents[str(expression)]
        if not expression.is_Symbol:
            return self._of_function(expression, type(expression).__name__)
        if expression.name in self._sums:
            return self._of(self._sums[expression.name])
        if expression.name not in self._names:
            raise UnknownSizeError(str(expression))
        return Extent.of(self._names[expression.name])

    def _of_function(self, expression: Any, kind: str) -> Extent:
        if kind == "Mul" and any(one.is_Rational and not one.is_Integer for one in expression.args):
            numerator, denominator = expression.as_numer_denom()
            return floor_divide(self._of(numerator), self._of(denominator))
        if kind == "Pow" and expression.args[1].is_Integer and int(expression.args[1]) > 0:
            return reduce(operator.mul, [self._of(expression.args[0])] * int(expression.args[1]))
        if kind in _ROUNDED:
            return self._whole(expression, kind)
        if kind == "Abs":
            size = self._of(expression.args[0])
            return larger(size, size * -1)
        if kind not in _FUNCTIONS:
            raise UnknownSizeError(str(expression))
        return reduce(_FUNCTIONS[kind], [self._of(one) for one in expression.args])

    def _whole(self, expression: Any, kind: str) -> Extent:
        """Return what is rounded to a whole number."""
        if type(expression.args[0]).__name__ == "IntTrueDiv":
            return self._rounded(expression, kind)
        if _is_quotient(expression.args[0]):
            return self._quotient(expression, kind)
        if kind == "CeilToInt":
            raise UnknownSizeError(str(expression))
        return self._part(expression)

    def _rounded(self, expression: Any, kind: str) -> Extent:
        """Return the rounded quotient of a size by a number, as ``math.ceil(x.shape[1] / 2)``."""
        size, divisor = expression.args[0].args
        is_known = divisor.is_Integer and int(divisor) > 0 and (kind != "TruncToInt" or size.is_nonnegative)
        if not is_known:
            raise UnknownSizeError(str(expression))
        number = int(divisor)
        return floor_divide(self._of(size) + (number - 1 if kind == "CeilToInt" else 0), Extent.of(number))

    def _quotient(self, expression: Any, kind: str) -> Extent:
        """Return the rounded quotient of a size by a whole number, as arange computes its own extent.

        The size may have a fraction beside it: rounded at once it gives the same as rounded at the end.
        """
        size, divisor = expression.args[0].args
        parts = size.args if type(size).__name__ == "Add" else (size,)
        sizes = [found for one in parts if (found := _signed_size(one)) is not None]
        fractions = [float(one) for one in parts if one.is_Float or one.is_Integer]
        is_known = len(sizes) == 1 and len(sizes) + len(fractions) == len(parts)
        if not is_known or kind == "TruncToInt" or float(divisor) % 1 or not divisor:
            raise UnknownSizeError(str(expression))
        sign = 1 if divisor > 0 else -1
        number, rounded = sign * int(float(divisor)), math.ceil if kind == "CeilToInt" else math.floor
        (factor, size), *_ = sizes
        numerator = self._of(size) * (sign * factor) + rounded(sign * sum(fractions))
        if kind == "CeilToInt":
            numerator = numerator + (number - 1)
        return floor_divide(numerator, Extent.of(number))

    def _part(self, expression: Any) -> Extent:
        """Return a size times a number, rounded down; the number is one whose products no float rounds."""
        (product,) = expression.args
        numbers = [one for one in product.args if one.is_Float or one.is_Rational]
        sizes = [one for one in product.args if type(one).__name__ == "ToFloat"]
        if type(product).__name__ != "Mul" or (len(numbers), len(sizes), len(product.args)) != (1, 1, 2):
            raise UnknownSizeError(str(expression))
        factor, (size,) = float(numbers[0]), sizes[0].args
        if not 0 < factor <= _MAX_NUMERATOR:
            raise UnknownSizeError(str(expression))
        number = Fraction(factor)
        if number.denominator > _MAX_DENOMINATOR:  # floats round its products
            number = _fraction_of_floats(factor, *self._bounds_of(size, factor))
        return floor_divide(self._of(size) * number.numerator, Extent.of(number.denominator))

    def _bounds_of(self, size: Any, factor: float) -> tuple[int, int]:
        """Return bounds of a size that a float multiplies; `GraphError` where they are too far apart."""
        ranges = {}
        for symbol in size.free_symbols:
            low, high = self.range_of(symbol)
            ranges[self._names.get(symbol.name, symbol.name)] = (low, 2**31 if high is None else high)
        extent = self._of(size)
        if not extent.variables <= ranges.keys():
            raise UnknownSizeError(str(size))
        low, high = extent.bounds(ranges)
        if high - low > _MOST_SIZES:
            raise GraphError(
                f"a size of {factor} times {self.text(size)}, which is {low}…{high}; allowed: a range of at "
                f"most {_MOST_SIZES} sizes, as Dim(…, max=512), or a factor as 0.5, 1.25 or 3"
            )
        return max(low, 1), high
