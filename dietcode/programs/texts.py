"""Texts that a program takes apart, in the words that programs may have: lists of their characters.

These functions are compiled as those of `dietcode.programs.lists` are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dietcode.programs import letters, splits
from dietcode.programs.splits import SPACES, split_at
from dietcode.runtime.programs.instances import characters, concatenated

# Their text is read as that of programs is, so they are written with loops.
_DIGITS = [one for one in map(chr, range(0x20000)) if one.isdigit()]


def length(text: str) -> int:
    """Return ``len(text)``."""
    return len(characters(text))


def item(text: str, at: int) -> str:
    """Return ``text[at]``."""
    return characters(text)[at]


def cut(text: str, low: int | None, high: int | None) -> str:
    """Return ``text[low:high]``."""
    return concatenated(characters(text)[low:high])


def stepped(text: str, low: int | None, high: int | None, step: int) -> str:
    """Return ``text[low:high:step]``."""
    return concatenated(characters(text)[low:high:step])


def listed(text: str) -> list[str]:
    """Return ``list(text)``."""
    return characters(text)


def repeated(text: str, times: int) -> str:
    """Return ``text * times``."""
    return concatenated([text] * times)


def begins(text: str, piece: str) -> bool:
    """Return ``text.startswith(piece)``."""
    return concatenated(characters(text)[: len(characters(piece))]) == piece


def ends(text: str, piece: str) -> bool:
    """Return ``text.endswith(piece)``."""
    own = characters(text)
    many = len(characters(piece))
    return many <= len(own) and concatenated(own[len(own) - many :]) == piece


def position(text: str, piece: str) -> int:
    """Return ``text.find(piece)``."""
    own = characters(text)
    many = len(characters(piece))
    for at in range(len(own) - many + 1):
        if concatenated(own[at : at + many]) == piece:
            return at
    return -1


def last_position(text: str, piece: str) -> int:
    """Return ``text.rfind(piece)``."""
    own = characters(text)
    many = len(characters(piece))
    for at in range(len(own) - many, -1, -1):
        if concatenated(own[at : at + many]) == piece:
            return at
    return -1


def index(text: str, piece: str) -> int:
    """Return ``text.index(piece)``."""
    found = position(text, piece)
    if found < 0:
        raise ValueError("substring not found")
    return found


def contains(piece: str, text: str) -> bool:
    """Return ``piece in text``."""
    own = characters(text)
    many = len(characters(piece))
    for at in range(len(own) - many + 1):  # noqa: SIM110
        if concatenated(own[at : at + many]) == piece:
            return True
    return False


def count(text: str, piece: str) -> int:
    """Return ``text.count(piece)``."""
    return len(split_at(text, piece)) - 1


def replaced(text: str, piece: str, other: str) -> str:
    """Return ``text.replace(piece, other)`` of a piece that is not empty."""
    found: list[str] = []
    for one in split_at(text, piece):
        if len(found) > 0:
            found.append(other)
        found.append(one)
    return concatenated(found)


def position_from(text: str, piece: str, low: int) -> int:
    """Return ``text.find(piece, low)``."""
    own = characters(text)
    many = len(characters(piece))
    for at in range(max(low + len(own) * int(low < 0), 0), len(own) - many + 1):
        if concatenated(own[at : at + many]) == piece:
            return at
    return -1


def stripped(text: str) -> str:
    """Return ``text.strip()``."""
    own = characters(text)
    low = 0
    high = len(own)
    while low < high and own[low] in SPACES:
        low = low + 1
    while high > low and own[high - 1] in SPACES:
        high = high - 1
    return concatenated(own[low:high])


def stripped_left(text: str) -> str:
    """Return ``text.lstrip()``."""
    own = characters(text)
    low = 0
    while low < len(own) and own[low] in SPACES:
        low = low + 1
    return concatenated(own[low:])


def stripped_right(text: str) -> str:
    """Return ``text.rstrip()``."""
    own = characters(text)
    high = len(own)
    while high > 0 and own[high - 1] in SPACES:
        high = high - 1
    return concatenated(own[:high])


def stripped_of(text: str, given: str) -> str:
    """Return ``text.strip(given)``."""
    return stripped_left_of(stripped_right_of(text, given), given)


def stripped_left_of(text: str, given: str) -> str:
    """Return ``text.lstrip(given)``."""
    own, others = characters(text), characters(given)
    low = 0
    while low < len(own) and own[low] in others:
        low = low + 1
    return concatenated(own[low:])


def stripped_right_of(text: str, given: str) -> str:
    """Return ``text.rstrip(given)``."""
    own, others = characters(text), characters(given)
    high = len(own)
    while high > 0 and own[high - 1] in others:
        high = high - 1
    return concatenated(own[:high])


def without_begin(text: str, piece: str) -> str:
    """Return ``text.removeprefix(piece)``."""
    return cut(text, len(characters(piece)), None) if begins(text, piece) else text


def without_end(text: str, piece: str) -> str:
    """Return ``text.removesuffix(piece)``."""
    many = len(characters(piece))
    return cut(text, None, len(characters(text)) - many) if many > 0 and ends(text, piece) else text


def parted(text: str, piece: str) -> tuple[str, str, str]:
    """Return ``text.partition(piece)``."""
    many = len(characters(piece))
    if many == 0:
        raise ValueError("empty separator")
    at = position(text, piece)
    if at < 0:
        return text, "", ""
    return cut(text, None, at), piece, cut(text, at + many, None)


def parted_last(text: str, piece: str) -> tuple[str, str, str]:
    """Return ``text.rpartition(piece)``."""
    many = len(characters(piece))
    if many == 0:
        raise ValueError("empty separator")
    at = last_position(text, piece)
    if at < 0:
        return "", "", text
    return cut(text, None, at), piece, cut(text, at + many, None)


def with_zeros(text: str, width: int) -> str:
    """Return ``text.zfill(width)``."""
    own = characters(text)
    zeros = ["0"] * (width - len(own))
    if len(own) > 0 and own[0] in ("+", "-"):
        return concatenated(own[:1] + zeros + own[1:])
    return concatenated(zeros + own)


def left(text: str, width: int) -> str:
    """Return ``text.ljust(width)``."""
    return concatenated([text] + [" "] * (width - len(characters(text))))


def right(text: str, width: int) -> str:
    """Return ``text.rjust(width)``."""
    return concatenated([" "] * (width - len(characters(text))) + [text])


def in_middle(text: str, width: int) -> str:
    """Return ``text.center(width)``."""
    return in_middle_of(text, width, " ")


def in_middle_of(text: str, width: int, fill: str) -> str:
    """Return ``text.center(width, fill)``: of what is odd one more is ahead where the width is odd."""
    many = max(width - len(characters(text)), 0)
    ahead = many // 2 + many % 2 * (width % 2)
    return concatenated([fill] * ahead + [text] + [fill] * (many - ahead))


def left_of(text: str, width: int, fill: str) -> str:
    """Return ``text.ljust(width, fill)``."""
    return concatenated([text] + [fill] * (width - len(characters(text))))


def right_of(text: str, width: int, fill: str) -> str:
    """Return ``text.rjust(width, fill)``."""
    return concatenated([fill] * (width - len(characters(text))) + [text])


def begins_with_one(text: str, pieces: Any) -> bool:
    """Return ``text.startswith(pieces)`` of several."""
    own = characters(text)
    for piece in pieces:  # noqa: SIM110
        if concatenated(own[: len(characters(piece))]) == piece:
            return True
    return False


def ends_with_one(text: str, pieces: Any) -> bool:
    """Return ``text.endswith(pieces)`` of several."""
    own = characters(text)
    for piece in pieces:
        many = len(characters(piece))
        if many <= len(own) and concatenated(own[len(own) - many :]) == piece:
            return True
    return False


def character(number: int) -> str:
    """Return ``chr(number)``."""
    if number < 0 or number > 0x10FFFF:
        raise ValueError("chr() arg not in range(0x110000)")
    return chr(number)


def are_digits(text: str) -> bool:
    """Return ``text.isdigit()``."""
    own = characters(text)
    for one in own:
        if one not in _DIGITS:
            return False
    return len(own) > 0


def are_spaces(text: str) -> bool:
    """Return ``text.isspace()``."""
    own = characters(text)
    for one in own:
        if one not in SPACES:
            return False
    return len(own) > 0


METHODS: dict[tuple[str, int], Callable[..., Any]] = {  # by how many arguments there are
    **splits.METHODS,
    ("strip", 0): stripped,
    ("startswith", 1): begins,
    ("endswith", 1): ends,
    ("find", 1): position,
    ("index", 1): index,
    ("count", 1): count,
    ("replace", 2): replaced,
    ("isdigit", 0): are_digits,
    ("isspace", 0): are_spaces,
    ("rfind", 1): last_position,
    ("lstrip", 0): stripped_left,
    ("rstrip", 0): stripped_right,
    ("strip", 1): stripped_of,
    ("lstrip", 1): stripped_left_of,
    ("rstrip", 1): stripped_right_of,
    ("removeprefix", 1): without_begin,
    ("removesuffix", 1): without_end,
    ("partition", 1): parted,
    ("rpartition", 1): parted_last,
    ("zfill", 1): with_zeros,
    ("ljust", 1): left,
    ("rjust", 1): right,
    ("ljust", 2): left_of,
    ("rjust", 2): right_of,
    ("center", 1): in_middle,
    ("center", 2): in_middle_of,
    ("find", 2): position_from,
    **letters.METHODS,
}
TAKEN: dict[tuple[str, int], tuple[type, ...]] = {  # by what is no text alone
    ("zfill", 1): (int,),
    ("ljust", 1): (int,),
    ("rjust", 1): (int,),
    ("center", 1): (int,),
    ("ljust", 2): (int, str),
    ("rjust", 2): (int, str),
    ("center", 2): (int, str),
    ("split", 2): (str, int),
    ("rsplit", 2): (str, int),
    ("find", 2): (str, int),
    ("replace", 3): (str, str, int),
}
OF_TUPLES = {"startswith": begins_with_one, "endswith": ends_with_one}
ALLOWED = ("join", *dict.fromkeys(name for name, _ in METHODS))
REHEARSED = ((" 1 ab aΣ'b \n\0 ", "b"), ("b", "b"))  # texts with which each line is reached
