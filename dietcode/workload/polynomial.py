"""The parser behind `DimExpr`: sums and products, multiplied out as they are read."""

from __future__ import annotations

import re

from dietcode.workload.text import clip

Monomial = tuple[tuple[str, int], ...]
Polynomial = dict[Monomial, int]

MAX_CHARS = 200
MAX_DEPTH = 20
MAX_COEFFICIENT = 2**31
MAX_POWER = 4
MAX_TERMS = 64
MAX_NAME_CHARS = 32

_TOKEN = re.compile(r"[ \t]*([0-9]+|[A-Za-z_][A-Za-z0-9_]*|[+*()])")


class RefusedError(ValueError):
    """The text is not a dimension; the message says why."""


def parse_polynomial(value: object) -> Polynomial:
    """Return a coefficient for each monomial of an integer or a text.

    Raises
    ------
    RefusedError
        `value` is neither, or exceeds a limit of this module.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _constant(value)
    if not isinstance(value, str):
        raise RefusedError("not an integer and not a text")
    if len(value) > MAX_CHARS:
        raise RefusedError(f"longer than {MAX_CHARS} characters")
    return _Parser(_tokens(value)).parse()


def _constant(value: int) -> Polynomial:
    if value < 0:
        raise RefusedError("negative")
    if value > MAX_COEFFICIENT:
        raise RefusedError("a number above 2**31")
    return {(): value} if value else {}


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    text, position = text.rstrip(" \t"), 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise RefusedError(f"cannot read {clip(text[position:].lstrip(), 20)}")
        tokens.append(match[1])
        position = match.end()
    return tokens


class _Parser:
    """``sum = product {"+" product}; product = atom {"*" atom}; atom = integer | name | "(" sum ")"``."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._position = 0
        self._depth = 0

    def parse(self) -> Polynomial:
        result = self._sum()
        if token := self._peek():
            before = self._tokens[self._position - 1]
            hint = f"; write {before}*{token}" if before.isdigit() and len(token) <= MAX_NAME_CHARS else ""
            raise RefusedError(f"unexpected {clip(token, 20)}{hint}")
        return result

    def _peek(self) -> str:
        return self._tokens[self._position]

    def _take(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _sum(self) -> Polynomial:
        result = self._product()
        while self._peek() == "+":
            self._take()
            result = _add(result, self._product())
        return result

    def _product(self) -> Polynomial:
        result = self._atom()
        while self._peek() == "*":
            self._take()
            result = _multiply(result, self._atom())
        return result

    def _atom(self) -> Polynomial:
        token = self._peek()
        if token in {"", "+", "*", ")"}:
            raise RefusedError(
                f"a number or variable is missing before {token!r}" if token else "it ends too early"
            )
        self._take()
        if token == "(":
            return self._parenthesis()
        if token.isdigit():
            if len(token) > 1 and token.startswith("0"):
                raise RefusedError(f"{clip(token, 20)} has a leading zero")
            return _constant(int(token))
        if len(token) > MAX_NAME_CHARS:
            raise RefusedError(f"a name longer than {MAX_NAME_CHARS} characters")
        return {((token, 1),): 1}

    def _parenthesis(self) -> Polynomial:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RefusedError(f"more than {MAX_DEPTH} nested parentheses")
        result = self._sum()
        if self._take() != ")":
            raise RefusedError("a ')' is missing")
        self._depth -= 1
        return result


def _add(left: Polynomial, right: Polynomial) -> Polynomial:
    result = dict(left)
    for monomial, coefficient in right.items():
        result[monomial] = result.get(monomial, 0) + coefficient
    return _limited(result)


def _multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for left_monomial, left_coefficient in left.items():
        for right_monomial, right_coefficient in right.items():
            powers = dict(left_monomial)
            for name, power in right_monomial:
                powers[name] = powers.get(name, 0) + power
            monomial = tuple(sorted(powers.items()))
            result[monomial] = result.get(monomial, 0) + left_coefficient * right_coefficient
    return _limited(result)


def _limited(polynomial: Polynomial) -> Polynomial:
    """Refuse what has grown too large; checked at every step, so that no step can take long."""
    if len(polynomial) > MAX_TERMS:
        raise RefusedError(f"more than {MAX_TERMS} terms")
    if any(coefficient > MAX_COEFFICIENT for coefficient in polynomial.values()):
        raise RefusedError("a number above 2**31")
    if any(power > MAX_POWER for monomial in polynomial for _, power in monomial):
        raise RefusedError(f"a power above {MAX_POWER}")
    return polynomial
