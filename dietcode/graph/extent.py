"""Extents of a whole model's axes: whole numbers that follow from its dimensions, ``2*L - 1``, ``(L +
1)//2``.

Unlike `dietcode.workload.expr.DimExpr` they may be subtracted, divided and compared. Equal extents have one
normal form: a polynomial over atoms, which are dimensions, and quotients, remainders, minima and maxima of
extents. Standard library only: the runtime uses it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias

from dietcode.workload.text import clip

MAX_CHARS = 400
_MAX_TERMS = 64
_MAX_ATOMS = 256
_MAX_NUMBER = 2**62
Ranges: TypeAlias = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Atom:
    """A function of two extents that is no polynomial.

    Attributes
    ----------
    function : str
        A key of `FUNCTIONS`.
    first, second : Extent
    """

    function: str
    first: Extent
    second: Extent

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        """Its text, by which factors are sorted: of nested ones each is written once."""
        if self.function in ("min", "max"):
            return f"{self.function}({self.first}, {self.second})"
        return f"(({self.first}){self.function}({self.second}))"


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
Factor: TypeAlias = str | Atom
Monomial: TypeAlias = tuple[tuple[Factor, int], ...]


@lru_cache(maxsize=1 << 12)
def _order(monomial: Monomial) -> tuple[int, str]:
    return -sum(power for _, power in monomial), str([(str(factor), power) for factor, power in monomial])


@dataclass(frozen=True)
class Extent:
    """A whole number that follows from the dimensions of a model.

    Parameters
    ----------
    terms : tuple of (int, monomial)
        In normal form; use `Extent.of`, `parse_extent` and arithmetic to make one.
    """

    terms: tuple[tuple[int, Monomial], ...] = field(default=())

    @classmethod
    def of(cls, value: Extent | int | str) -> Extent:
        """Return the extent of a number, or of a dimension by its name."""
        if isinstance(value, Extent):
            return value
        if isinstance(value, str):
            return cls(((1, ((value, 1),)),))
        return cls(((int(value), ()),)) if value else cls()

    @property
    def is_constant(self) -> bool:
        """Whether it follows from no dimension."""
        return all(not monomial for _, monomial in self.terms)

    @property
    def constant(self) -> int:
        """The value of a constant extent.

        Raises
        ------
        ValueError
            It follows from a dimension.
        """
        if not self.is_constant:
            raise ValueError(f"{self} is no constant")
        return sum(coefficient for coefficient, _ in self.terms)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names of the dimensions that it follows from."""
        found: set[str] = set()
        for _, monomial in self.terms:
            for factor, _ in monomial:
                if isinstance(factor, str):
                    found.add(factor)
                else:
                    found |= factor.first.variables | factor.second.variables
        return frozenset(found)

    @cached_property
    def num_atoms(self) -> int:
        """Number of quotients, minima and maxima in its text, nested ones too."""
        factors = (factor for _, monomial in self.terms for factor, _ in monomial)
        return sum(1 + one.first.num_atoms + one.second.num_atoms for one in factors if isinstance(one, Atom))

    def evaluate(
        self, binding: Mapping[str, int], functions: Mapping[str, Callable[[int, int], int]] | None = None
    ) -> int:
        """Return the value for values of the dimensions.

        Parameters
        ----------
        functions : mapping of str to callable, optional
            Instead of those of `FUNCTIONS`, for values that are no plain numbers.

        Raises
        ------
        KeyError
            A dimension is not bound.
        ZeroDivisionError
            It divides by an extent that is 0 there.
        """
        total = 0
        for coefficient, monomial in self.terms:
            product = coefficient
            for factor, power in monomial:
                if isinstance(factor, str):
                    value = binding[factor]
                else:
                    first = factor.first.evaluate(binding, functions)
                    second = factor.second.evaluate(binding, functions)
                    own = functions and functions.get(factor.function)
                    value = (own or FUNCTIONS[factor.function])(first, second)
                product *= value**power
            total += product
        return total

    def bounds(self, ranges: Ranges) -> tuple[int, int]:
        """Return a least and a greatest value that enclose it, by interval arithmetic.

        Parameters
        ----------
        ranges : mapping of str to (int, int)
            The least and the greatest value of each dimension.
        """
        return self._bounds(ranges, {})

    def _bounds(self, ranges: Ranges, known: dict[Extent, tuple[int, int]]) -> tuple[int, int]:
        """Return `bounds`, each extent's once: an inner one is asked for twice at each of its quotients."""
        found = known.get(self)
        if found is None:
            found = known[self] = self._enclosed(ranges, known)
        return found

    def _enclosed(self, ranges: Ranges, known: dict[Extent, tuple[int, int]]) -> tuple[int, int]:
        low = high = 0
        for coefficient, monomial in self.terms:
            interval = (coefficient, coefficient)
            for factor, power in monomial:
                own = ranges[factor] if isinstance(factor, str) else _atom_bounds(factor, ranges, known)
                for _ in range(power):
                    corners = [a * b for a in interval for b in own]
                    interval = (min(corners), max(corners))
            low, high = low + interval[0], high + interval[1]
        found = self._with_remainder()
        if found is None:
            return low, high
        rest, share, divisor = found
        least, most = rest._bounds(ranges, known)
        less = (share * (divisor - 1), 0) if share < 0 else (0, share * (divisor - 1))
        return max(low, least - less[1]), min(high, most - less[0])

    def _with_remainder(self) -> tuple[Extent, int, int] | None:
        """Return rest, share and divisor of an extent that is ``rest - share * (n % divisor)``.

        A quotient and its numerator in one sum move together: ``7 * ((L + 6) // 7) - L`` is 0 to 6. So do two
        quotients of one numerator: ``L // 2 - 2 * (L // 4)`` is 0 or 1.
        """
        quotients = {
            monomial[0][0]: coefficient
            for coefficient, monomial in self.terms
            if len(monomial) == 1 and monomial[0][1] == 1 and _is_quotient(monomial[0][0])
        }
        divisors = {one: one.second.constant for one in quotients if isinstance(one, Atom)}
        for atom, own in divisors.items():
            coefficient = quotients[atom]
            for other in (None, *divisors):
                # The numerator itself, or another quotient of it, of which this one is a quotient again.
                by = 1 if other is None else divisors[other]
                divisor = own // by
                if own % by or divisor < 2 or coefficient % divisor:
                    continue
                if other is not None and not other.first.variables <= atom.first.variables:
                    continue  # no quotient of it; a sum of many quotients has many pairs of them
                base = floor_divide(atom.first, Extent.of(by))
                if other is None or any(monomial == ((other, 1),) for _, monomial in base.terms):
                    share = coefficient // divisor
                    return self - Extent(((coefficient, ((atom, 1),)),)) + base * share, share, divisor
        return None

    def __add__(self, other: Extent | int) -> Extent:
        found = {monomial: coefficient for coefficient, monomial in self.terms}
        for coefficient, monomial in Extent.of(other).terms:
            found[monomial] = found.get(monomial, 0) + coefficient
        return _normal(found)

    def __mul__(self, other: Extent | int) -> Extent:
        found: dict[Monomial, int] = {}
        for left, first in self.terms:
            for right, second in Extent.of(other).terms:
                powers = dict(first)
                for factor, power in second:
                    powers[factor] = powers.get(factor, 0) + power
                key = tuple(sorted(powers.items(), key=lambda item: str(item[0])))
                found[key] = found.get(key, 0) + left * right
        return _normal(found)

    def __sub__(self, other: Extent | int) -> Extent:
        return self + Extent.of(other) * -1

    def __str__(self) -> str:
        """Return its text, which `parse_extent` reads."""
        text = ""
        for coefficient, monomial in self.terms:
            factors = [str(factor) for factor, power in monomial for _ in range(power)]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
            text += sign + "*".join(factors)
        return text or "0"


ONE = Extent.of(1)


def product_of(extents: Iterable[Extent]) -> Extent:
    """Return the product of extents; 1 for none."""
    return math.prod(extents, start=ONE)


def _is_quotient(factor: Factor) -> bool:
    """Whether it is divided by a positive number."""
    if isinstance(factor, str) or factor.function != "//" or not factor.second.is_constant:
        return False
    return factor.second.constant > 0


def _normal(found: Mapping[Monomial, int]) -> Extent:
    kept = sorted(((c, m) for m, c in found.items() if c), key=lambda term: _order(term[1]))
    if len(kept) > _MAX_TERMS or any(abs(c) > _MAX_NUMBER for c, _ in kept):
        raise ValueError(f"an extent of more than {_MAX_TERMS} terms, or with a number above 2**62")
    return Extent(tuple(kept))


def _atom_bounds(atom: Atom, ranges: Ranges, known: dict[Extent, tuple[int, int]]) -> tuple[int, int]:
    first, second = atom.first._bounds(ranges, known), atom.second._bounds(ranges, known)
    if atom.function in ("min", "max"):
        choose = FUNCTIONS[atom.function]
        return choose(first[0], second[0]), choose(first[1], second[1])
    if second[0] < 1:  # a divisor that may be 0 or negative tells nothing
        largest = max(abs(first[0]), abs(first[1]))
        return -largest, largest
    if atom.function == "%":
        return (0, second[1] - 1) if first[0] < 0 else (0, min(first[1], second[1] - 1))
    corners = [a // b for a in first for b in second]
    return min(corners), max(corners)


def _quotient_of_terms(numerator: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """Return what of a numerator a divisor of one term divides exactly, and the rest."""
    ((number, monomial),) = divisor.terms
    exact, rest = Extent(), Extent()
    for coefficient, own in numerator.terms:
        powers = dict(own)
        for factor, power in monomial:
            powers[factor] = powers.get(factor, 0) - power
        if coefficient % number == 0 and all(power >= 0 for power in powers.values()):
            kept = tuple((factor, power) for factor, power in powers.items() if power)
            exact = exact + Extent(((coefficient // number, kept),))
        else:
            rest = rest + Extent(((coefficient, own),))
    return exact, rest


def floor_divide(numerator: Extent, divisor: Extent) -> Extent:
    """Return ``numerator // divisor``; a divisor has to be positive wherever it is used.

    Raises
    ------
    ValueError
        The divisor is 0.
    """
    if not divisor.terms:
        raise ValueError("an extent divided by 0")
    if numerator == divisor:
        return ONE
    numerator, divisor = _without_nested(numerator, divisor)
    if len(divisor.terms) > 1:
        exact = _long_division(numerator, divisor)
        return _atom("//", numerator, divisor) if exact is None else exact
    exact, rest = _quotient_of_terms(numerator, divisor)
    if not rest.terms:
        return exact
    if (
        divisor.is_constant
    ):  # one text for all that are equal: the number in the quotient is below the divisor
        whole = sum(coefficient for coefficient, one in rest.terms if not one) // divisor.constant
        exact, rest = exact + whole, rest - divisor * whole
        if rest.is_constant:
            return exact
        if divisor.constant > 0 and rest.terms[0][0] < 0:  # -(-L // 2), which is rounded up, is (L + 1) // 2
            return exact - floor_divide(rest * -1 + (divisor.constant - 1), divisor)
    # What is left may be a quotient of a quotient.
    return exact + floor_divide(rest, divisor) if exact.terms else _atom("//", rest, divisor)


def _without_nested(numerator: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """Return a quotient of a quotient as one: ``(L // 5 + 1) // 2`` is ``(L + 5) // 10``."""
    if not divisor.is_constant or divisor.constant <= 0:
        return numerator, divisor
    for coefficient, monomial in numerator.terms:
        rest = numerator - Extent(((coefficient, monomial),))
        if coefficient != 1 or len(monomial) != 1 or not rest.is_constant:
            continue
        ((factor, power),) = monomial
        if power != 1 or isinstance(factor, str) or factor.function != "//" or not factor.second.is_constant:
            continue
        if factor.second.constant > 0:
            return _without_nested(
                factor.first + rest * factor.second, Extent.of(divisor.constant * factor.second.constant)
            )
    return numerator, divisor


def _long_division(numerator: Extent, divisor: Extent) -> Extent | None:
    """Return the quotient of polynomials where there is no remainder."""
    quotient, rest = Extent(), numerator
    for _ in range(_MAX_TERMS):
        if not rest.terms:
            return quotient
        step, left = _quotient_of_terms(Extent(rest.terms[:1]), Extent(divisor.terms[:1]))
        if left.terms:
            return None
        quotient, rest = quotient + step, rest - step * divisor
    return None


def remainder(numerator: Extent, divisor: Extent) -> Extent:
    """Return ``numerator % divisor``, by the same rule as `floor_divide`."""
    return numerator - floor_divide(numerator, divisor) * divisor


def smaller(first: Extent, second: Extent, ranges: Ranges | None = None) -> Extent:
    """Return the smaller of two: one of them, wherever the ranges tell which."""
    return _chosen("min", first, second, ranges)


def larger(first: Extent, second: Extent, ranges: Ranges | None = None) -> Extent:
    """Return the larger of two, as `smaller` does."""
    return _chosen("max", first, second, ranges)


def _chosen(function: str, first: Extent, second: Extent, ranges: Ranges | None) -> Extent:
    difference = first - second
    least, most = None, None
    if difference.is_constant:
        least = most = difference.constant
    elif ranges is not None and difference.variables <= set(ranges):
        least, most = difference.bounds(ranges)
    if least is not None and least >= 0:
        return second if function == "min" else first
    if most is not None and most <= 0:
        return first if function == "min" else second
    ordered = sorted((first, second), key=str)
    return _atom(function, ordered[0], ordered[1])


def _atom(function: str, first: Extent, second: Extent) -> Extent:
    # A sum of two quotients of itself doubles its text; a chain of such has to end.
    if first.num_atoms + second.num_atoms >= _MAX_ATOMS:
        raise ValueError(f"an extent of more than {_MAX_ATOMS} quotients, minima and maxima")
    return Extent(((1, ((Atom(function, first, second), 1),)),))


def simplified(extent: Extent, ranges: Ranges) -> Extent:
    """Return an extent with minima, maxima and quotients decided where ranges decide them.

    So ``min(L, 128)`` with L up to 128 is L.
    """
    result = Extent()
    for coefficient, monomial in extent.terms:
        product = Extent.of(coefficient)
        for factor, power in monomial:
            value = Extent.of(factor) if isinstance(factor, str) else _decided(factor, ranges)
            for _ in range(power):
                product = product * value
        result = result + product
    return result


def _decided(atom: Atom, ranges: Ranges) -> Extent:
    first, second = simplified(atom.first, ranges), simplified(atom.second, ranges)
    if atom.function == "min":
        return smaller(first, second, ranges)
    if atom.function == "max":
        return larger(first, second, ranges)
    divided = floor_divide(first, second)
    low, high = divided.bounds(ranges)
    divided = Extent.of(low) if low == high else divided
    return divided if atom.function == "//" else first - divided * second


def parse_extent(value: object) -> Extent:
    """Read a whole number or the text of an extent; nothing in it is executed.

    Raises
    ------
    ValueError
        It is neither, too long, or uses anything but names, numbers, ``+ - * // %``, min and max.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > _MAX_NUMBER:
            raise ValueError(f"given {clip(value)}; allowed: up to 2**62")
        return Extent.of(value)
    if not isinstance(value, str) or len(value) > MAX_CHARS or not value.isascii():
        raise ValueError(f"given {clip(value)}; allowed: a number or up to {MAX_CHARS} characters")
    try:
        return _read(ast.parse(value, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"given {clip(value)}; allowed: names, numbers, + - * // %, min and max") from None


_ARITHMETIC: dict[type, Callable[[Extent, Extent], Extent]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: floor_divide,
    ast.Mod: remainder,
}


def _read(node: ast.expr) -> Extent:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) <= _MAX_NUMBER:
        return Extent.of(node.value)
    if isinstance(node, ast.Name):
        return Extent.of(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _read(node.operand) * -1
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_read(node.left), _read(node.right))
    match node:
        case ast.Call(func=ast.Name(id="min" | "max" as function), args=[first, second], keywords=[]):
            return (smaller if function == "min" else larger)(_read(first), _read(second))
    raise ValueError(f"given {clip(ast.unparse(node))}; allowed: names, numbers, + - * // %, min and max")
