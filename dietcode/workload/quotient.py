"""Dimensions that follow from others, as the positions of a window do: ``(8*T + 1 - 3*R)//2``.

Specs never contain one; manifests do. Needs no pydantic: the runtime uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dietcode.errors import SpecError
from dietcode.workload.expr import DimExpr
from dietcode.workload.polynomial import Monomial
from dietcode.workload.text import clip

_ALLOWED = "allowed: a dimension, a difference of two, or (difference)//integer"
_MAX_DIVISOR_DIGITS = 10


@dataclass(frozen=True)
class QuotientDim:
    """``(plus - minus) // divisor``, rounded down; the interface of `DimExpr` otherwise.

    Parameters
    ----------
    plus, minus : DimExpr
        Without a monomial in common. Use `parse_dim` or `window_positions` to make one.
    divisor : int
        At least 1.
    """

    plus: DimExpr
    minus: DimExpr
    divisor: int

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the shape variables in it, sorted."""
        return tuple(sorted({*self.plus.variables, *self.minus.variables}))

    @property
    def is_constant(self) -> bool:
        """Whether no shape variable occurs."""
        return self.plus.is_constant and self.minus.is_constant

    def constant_value(self) -> int:
        """Return the value of a constant.

        Raises
        ------
        ValueError
            A shape variable occurs.
        """
        return (self.plus.constant_value() - self.minus.constant_value()) // self.divisor

    @overload
    def evaluate(self, binding: Mapping[str, int]) -> int: ...

    @overload
    def evaluate(self, binding: Mapping[str, int | NDArray[np.int64]]) -> int | NDArray[np.int64]: ...

    def evaluate(self, binding: Mapping[str, int | NDArray[np.int64]]) -> int | NDArray[np.int64]:
        """Evaluate as `DimExpr.evaluate` does."""
        difference = self.plus.evaluate(binding) - self.minus.evaluate(binding)
        return difference // self.divisor

    def linear_in(self, variable: str) -> bool:
        """Return False: several values of a variable may give one extent."""
        del variable
        return False

    def solve(self, variable: str, value: int, known: Mapping[str, int]) -> int | None:
        """Return None: it is linear in no variable."""
        del variable, value, known
        return None

    def __str__(self) -> str:
        """Return canonical text, which `parse_dim` parses to an equal dimension."""
        minus = f"({self.minus})" if len(self.minus.terms) > 1 else str(self.minus)
        inner = f"{self.plus} - {minus}" if self.minus.terms else str(self.plus)
        return inner if self.divisor == 1 else f"({inner})//{self.divisor}"


Dim: TypeAlias = DimExpr | QuotientDim


def parse_dim(text: str, field: str) -> Dim:
    """Parse the canonical text of either kind of dimension.

    Parameters
    ----------
    text : str
        As a manifest has it.
    field : str
        Dotted path named by the error.

    Raises
    ------
    SpecError
        The text is neither.
    """
    if not isinstance(text, str) or not ("//" in text or " - " in text):
        return DimExpr.parse(text, field)
    inner, _, divisor = text.rpartition("//") if "//" in text else (f"({text})", "", "1")
    if not (inner.startswith("(") and inner.endswith(")")) or not _is_positive(divisor):
        raise SpecError(field, f"given {clip(text)}; {_ALLOWED}")
    plus, sign, minus = inner[1:-1].partition(" - ")
    return QuotientDim(DimExpr.parse(plus, field), DimExpr.parse(minus if sign else 0, field), int(divisor))


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdigit() and not text.startswith("0") and len(text) <= _MAX_DIVISOR_DIGITS


def window_positions(
    axis: DimExpr, kernel: DimExpr, stride: int, dilation: int, padding: int, field: str
) -> Dim:
    """Return a window's positions, ``(axis + padding - dilation·(kernel - 1) - 1) // stride + 1``.

    Parameters
    ----------
    axis, kernel : DimExpr
        Extents of the axis and of the window.
    stride, dilation, padding : int
        In elements of the axis; the padding of both sides together.
    field : str
        Dotted path named by the error.

    Returns
    -------
    DimExpr or QuotientDim
        The former wherever the division has no remainder for any value of the variables, as for stride 1 and
        a padding that keeps the extent.

    Raises
    ------
    SpecError
        Numbers in it exceed the limits of dimensions.
    """
    terms: dict[Monomial, int] = {(): padding + dilation - 1 + stride}
    for coefficient, monomial in axis.terms:
        terms[monomial] = terms.get(monomial, 0) + coefficient
    for coefficient, monomial in kernel.terms:
        terms[monomial] = terms.get(monomial, 0) - dilation * coefficient
    divisor = stride
    if all(coefficient % stride == 0 for monomial, coefficient in terms.items() if monomial):
        terms, divisor = {monomial: number // stride for monomial, number in terms.items()}, 1
    plus = _read({monomial: number for monomial, number in terms.items() if number > 0}, field)
    minus = _read({monomial: -number for monomial, number in terms.items() if number < 0}, field)
    return plus if divisor == 1 and not minus.terms else QuotientDim(plus, minus, divisor)


def _read(terms: Mapping[Monomial, int], field: str) -> DimExpr:
    """Check as `DimExpr.parse` does, its limits included."""
    return DimExpr.parse(str(DimExpr(tuple((number, monomial) for monomial, number in terms.items()))), field)


def bounds(dim: Dim, low: Mapping[str, int], high: Mapping[str, int]) -> tuple[int, int]:
    """Return the least and the greatest extent for variables between `low` and `high`.

    Exact where no variable is in both parts of a quotient; otherwise they enclose the extents.
    """
    if isinstance(dim, DimExpr):
        return dim.evaluate(low), dim.evaluate(high)
    least = dim.plus.evaluate(low) - dim.minus.evaluate(high)
    greatest = dim.plus.evaluate(high) - dim.minus.evaluate(low)
    return least // dim.divisor, greatest // dim.divisor
