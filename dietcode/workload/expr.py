"""Dimensions as polynomials over shape variables: ``16*T``, ``T + 1``, ``2*(B + 1)*T``.

Parsed by a small recursive-descent parser, never evaluated as code. Needs no pydantic: the runtime uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dietcode.errors import SpecError
from dietcode.workload.polynomial import (
    MAX_CHARS,
    Monomial,
    Polynomial,
    RefusedError,
    parse_polynomial,
)
from dietcode.workload.text import clip

_ALLOWED = "allowed: a non-negative integer, or sums and products of such integers and shape variables"


@dataclass(frozen=True)
class DimExpr:
    """A polynomial with positive integer coefficients over shape variables.

    Parameters
    ----------
    terms : tuple of (int, tuple of (str, int))
        Canonical: one entry (coefficient, ((variable, power), …)) for each monomial, highest total degree
        first, then by variables; coefficients in 1…2**31, powers in 1…4. Zero is the empty tuple. Use `parse`
        to make one.
    """

    terms: tuple[tuple[int, Monomial], ...]

    @classmethod
    def parse(cls, value: object, field: str) -> DimExpr:
        """Parse an integer, or a string of sums and products.

        Parameters
        ----------
        value : int or str
            At most 200 characters, also once multiplied out.
        field : str
            Dotted path named by the error.

        Raises
        ------
        SpecError
            `value` is anything else.
        """
        try:
            expr = cls(_canonical(parse_polynomial(value)))
            if len(str(expr)) > MAX_CHARS:
                raise RefusedError(f"multiplied out it is longer than {MAX_CHARS} characters")
        except RefusedError as error:
            raise SpecError(field, f"given {clip(value)}; {error}; {_ALLOWED}") from None
        return expr

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the shape variables in it, sorted."""
        return tuple(sorted({name for _, monomial in self.terms for name, _ in monomial}))

    @property
    def is_constant(self) -> bool:
        """Whether no shape variable occurs."""
        return not any(monomial for _, monomial in self.terms)

    def constant_value(self) -> int:
        """Return the value of a constant.

        Raises
        ------
        ValueError
            A shape variable occurs.
        """
        if not self.is_constant:
            raise ValueError(f"{self} is not a constant")
        return sum(coefficient for coefficient, _ in self.terms)

    @overload
    def evaluate(self, binding: Mapping[str, int]) -> int: ...

    @overload
    def evaluate(self, binding: Mapping[str, int | NDArray[np.int64]]) -> int | NDArray[np.int64]: ...

    def evaluate(self, binding: Mapping[str, int | NDArray[np.int64]]) -> int | NDArray[np.int64]:
        """Return the extent for one binding, or elementwise for arrays of bindings.

        Parameters
        ----------
        binding : mapping of str to int or int64 array [num_instances]
            At least the variables that occur; arrays broadcast against each other.

        Returns
        -------
        int or int64 array [num_instances]
            An int where no array was needed, as for a constant.

        Raises
        ------
        KeyError
            A variable that occurs is not bound.
        """
        total: int | NDArray[np.int64] = 0
        for coefficient, monomial in self.terms:
            product: int | NDArray[np.int64] = coefficient
            for name, power in monomial:
                product = product * _exact(binding[name]) ** power
            total = total + product
        return total

    def linear_in(self, variable: str) -> bool:
        """Whether `variable` occurs, and only with power 1."""
        powers = [power for _, monomial in self.terms for name, power in monomial if name == variable]
        return bool(powers) and max(powers) == 1

    def solve(self, variable: str, value: int, known: Mapping[str, int]) -> int | None:
        """Solve ``self == value`` for `variable`.

        Parameters
        ----------
        variable : str
            The unknown.
        value : int
            The extent seen.
        known : mapping of str to int
            Values of the other variables.

        Returns
        -------
        int or None
            The exact solution, not checked against any range and so possibly below 1. None where the
            expression is not linear in `variable`, another variable is unknown, or no integer solves it.
        """
        if not self.linear_in(variable):
            return None
        others = {name: int(bound) for name, bound in known.items() if name != variable}
        if any(name not in others for name in self.variables if name != variable):
            return None
        at_zero = self.evaluate({**others, variable: 0})
        slope = self.evaluate({**others, variable: 1}) - at_zero
        if slope == 0:
            return None
        quotient, remainder = divmod(int(value) - at_zero, slope)
        return quotient if remainder == 0 else None

    def __str__(self) -> str:
        """Return canonical text, which parses to an equal expression."""
        return " + ".join(_term_text(*term) for term in self.terms) or "0"


def _exact(value: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
    """Avoid the overflow of narrow NumPy integers."""
    return value.astype(np.int64, copy=False) if isinstance(value, np.ndarray) else int(value)


def _term_text(coefficient: int, monomial: Monomial) -> str:
    factors = [name for name, power in monomial for _ in range(power)]
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return "*".join(factors)


def _canonical(polynomial: Polynomial) -> tuple[tuple[int, Monomial], ...]:
    def order(monomial: Monomial) -> tuple[int, Monomial]:
        return -sum(power for _, power in monomial), monomial

    return tuple((polynomial[monomial], monomial) for monomial in sorted(polynomial, key=order))
