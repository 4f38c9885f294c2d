"""Numbers as texts: how they are read, and how they are written by formats.

These functions are compiled as those of `dietcode.programs.texts` are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

from dietcode.programs import letters, texts
from dietcode.runtime.programs.instances import characters, concatenated, parsed

_ZEROS = [k for k in range(0x20000) if unicodedata.decimal(chr(k), -1) == 0]  # nine others follow each
_DIGITS = list("0123456789")
_VALUES = {str(k): k for k in range(10)}


def decimal(one: str) -> int:
    """Return ``unicodedata.decimal(one, -1)``."""
    number = ord(one)
    low = 0
    high = len(_ZEROS)
    while low < high:
        middle = (low + high) // 2
        if _ZEROS[middle] <= number:
            low = middle + 1
        else:
            high = middle
    value = number - _ZEROS[max(low - 1, 0)]
    return value if 0 <= value < 10 else -1


def plain_number(text: str) -> list[str]:
    """Return a number's characters without spaces around it and ``_`` between digits; digits are plain."""
    own = characters(texts.stripped(text))
    values = [_VALUES.get(one, -1) if ord(one) < 128 else decimal(one) for one in own]
    found: list[str] = []
    for at in range(len(own)):
        is_inside = at > 0 and at + 1 < len(own)
        if values[at] >= 0:
            found.append(_DIGITS[values[at]])
        elif not (own[at] == "_" and is_inside and values[at - 1] >= 0 and values[at + 1] >= 0):
            found.append(own[at])
    return found


def whole(text: str) -> int:
    """Return ``int(text)``."""
    own = plain_number(text)
    sign = 1
    at = 0
    if len(own) > 0 and own[0] in ("+", "-"):
        at = 1
        if own[0] == "-":
            sign = -1
    is_number = at < len(own)
    found = 0
    while at < len(own):
        value = _VALUES.get(own[at], -1)
        if value < 0:
            is_number = False
            at = len(own)
        else:
            found = 10 * found + value
            at = at + 1
    if not is_number:
        said = letters.quoted(text)
        raise ValueError(f"invalid literal for int() with base 10: {said}")
    return sign * found


def real(text: str) -> float:
    """Return ``float(text)``."""
    found = parsed(concatenated(plain_number(text)))
    if found is None:
        said = letters.quoted(text)
        raise ValueError(f"could not convert string to float: {said}")
    return found


# ---- How numbers are written ----


def at_left(text: str, width: int, fill: str) -> str:
    """Return ``text.ljust(width, fill)``."""
    return concatenated([text] + [fill] * (width - len(characters(text))))


def at_right(text: str, width: int, fill: str) -> str:
    """Return ``text.rjust(width, fill)``."""
    return concatenated([fill] * (width - len(characters(text))) + [text])


def centred(text: str, width: int, fill: str) -> str:
    """Return ``f"{text:{fill}^{width}}"``: what is odd comes behind."""
    many = max(width - len(characters(text)), 0)
    return concatenated([fill] * (many // 2) + [text] + [fill] * (many - many // 2))


def filled(text: str, fill: str, width: int, ahead: int) -> str:
    """Return a number in a width, with what fills it behind its sign and `ahead` characters more."""
    own = characters(text)
    begin = ahead
    if len(own) > 0 and own[0] in ("+", "-", " "):
        begin = begin + 1
    return concatenated(own[:begin] + [fill] * (width - len(own)) + own[begin:])


def signed(text: str, sign: str) -> str:
    """Return a number with a sign, which it has if it is negative."""
    return text if concatenated(characters(text)[:1]) == "-" else concatenated([sign, text])


def grouped(text: str, between: str) -> str:
    """Return a number with something between each three digits in front of its point."""
    own = characters(text)
    begin = 0
    if len(own) > 0 and own[0] == "-":
        begin = 1
    end = begin
    while end < len(own) and own[end] in _DIGITS:
        end = end + 1
    found = own[:begin]
    for at in range(begin, end):
        if at > begin and (end - at) % 3 == 0:
            found.append(between)
        found.append(own[at])
    return concatenated(found + own[end:])


def in_base(number: int, base: int, digits: str, prefix: str) -> str:
    """Return a whole number in a base, behind a prefix."""
    own = characters(digits)
    rest = abs(number)
    found = [own[rest % base]]
    rest = rest // base
    while rest > 0:
        found.append(own[rest % base])
        rest = rest // base
    return concatenated(["-" if number < 0 else "", prefix, *found[::-1]])


def between_ends(items: list[str], ends: str) -> str:
    """Return the text of a list or a tuple of the texts of its items: ``[1, 2]``, ``(1,)``."""
    own = characters(ends)
    found = [own[0]]
    for at in range(len(items)):
        if at > 0:
            found.append(", ")
        found.append(items[at])
    if len(items) == 1 and own[0] == "(":
        found.append(",")
    found.append(own[1])
    return concatenated(found)


def shortened(text: str, behind: int, plain: str) -> str:
    """Return ``format(x, ".3")`` of ``format(x, ".2e")``, with 2 digits behind the point, and ``str(x)``."""
    if texts.position(plain, ".") < 0 and texts.position(plain, "e") < 0 and texts.position(plain, "n") < 0:
        raise ValueError("Precision not allowed in integer format specifier")
    own = characters(text)
    mark = texts.position(text, "e")
    if mark < 0:
        return text
    begin = 0
    if own[0] == "-":
        begin = 1
    power = 0
    for one in own[mark + 2 :]:
        power = 10 * power + _VALUES.get(one, 0)
    if own[mark + 1] == "-":
        power = -power
    digits = [one for one in own[begin:mark] if one != "."]
    while len(digits) > 1 and digits[len(digits) - 1] == "0":
        digits.pop()
    found = own[:begin]
    if power < -4 or power >= behind:
        found = found + digits[:1]
        if len(digits) > 1:
            found.append(".")
        return concatenated(found + digits[1:] + own[mark:])
    if power < 0:
        return concatenated(found + ["0", "."] + ["0"] * (-1 - power) + digits)
    digits = digits + ["0"] * (power + 2 - len(digits))
    return concatenated(found + digits[: power + 1] + ["."] + digits[power + 1 :])


FUNCTIONS: dict[Any, Callable[..., Any]] = {  # of texts
    len: texts.length,
    list: texts.listed,
    int: whole,
    float: real,
}
