"""What Python's ``math`` does with whole numbers, in the words that programs may have.

These functions are compiled as those of `dietcode.programs.lists` are. ``| 0`` takes whole numbers alone.
"""

from __future__ import annotations


def greatest_divisor(first: int, second: int) -> int:
    """Return ``math.gcd(first, second)``."""
    found = abs(first | 0)
    rest = abs(second | 0)
    while rest > 0:
        before = found
        found = rest
        rest = before % rest
    return found


def least_multiple(first: int, second: int) -> int:
    """Return ``math.lcm(first, second)``."""
    divisor = greatest_divisor(first, second)
    return abs(first // max(divisor, 1) * second)


def root(number: int) -> int:
    """Return ``math.isqrt(number)``."""
    if (number | 0) < 0:
        raise ValueError("isqrt() argument must be nonnegative")
    found = number | 0
    above = found // 2 + found % 2
    while above < found:
        found = above
        above = (found + number // found) // 2
    return found


def factorial(number: int) -> int:
    """Return ``math.factorial(number)``."""
    if (number | 0) < 0:
        raise ValueError("factorial() not defined for negative values")
    found = 1
    for one in range(2, number + 1):
        found = found * one
    return found


def ways(many: int, chosen: int) -> int:
    """Return ``math.comb(many, chosen)``."""
    if (many | 0) < 0:
        raise ValueError("n must be a non-negative integer")
    if (chosen | 0) < 0:
        raise ValueError("k must be a non-negative integer")
    found = 1
    for k in range(min(chosen, many - chosen)):
        found = found * (many - k) // (k + 1)
    return found if chosen <= many else 0


def power_within(base: int, exponent: int, modulus: int) -> int:
    """Return ``pow(base, exponent, modulus)``; of an exponent below 0, which asks for an inverse, none."""
    if (exponent | 0) < 0:
        raise ValueError("base is not invertible for the given modulus")
    if (modulus | 0) == 0:
        raise ValueError("pow() 3rd argument cannot be 0")
    found = 1 % modulus
    rest = exponent
    square = (base | 0) % modulus
    while rest > 0:
        if rest % 2 == 1:
            found = found * square % modulus
        rest = rest // 2
        if rest > 0:
            square = square * square % modulus
    return found
