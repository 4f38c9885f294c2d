"""Letters of texts, in the words that programs may have: capitals, small ones, and how ``repr`` writes them.

These functions are compiled as those of `dietcode.programs.texts` are. Which characters are letters, and what
they become, is Python's own table, as runs of characters that are alike and as pairs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from itertools import compress
from operator import ne
from typing import Any

from dietcode.runtime.programs.instances import characters, concatenated

_CHARACTERS = [
    chr(one) for one in (*range(0x32400), *range(0xE0000, 0xE0200))
]  # none behind, or between, is known
_IGNORED = frozenset(
    "'.:·\u0387\u055f\u05f4‘’․‧\ufe13﹒﹕＇．："
)  # in the middle of a word, beside what has these categories:
_IGNORED_CATEGORIES = frozenset(("Mn", "Me", "Cf", "Lm", "Sk"))


def _changed(change: Callable[[str], str]) -> dict[str, str]:
    others = list(map(change, _CHARACTERS))
    return dict(compress(zip(_CHARACTERS, others, strict=True), map(ne, _CHARACTERS, others)))


_CAPITALS, _SMALL, _TITLES = _changed(str.upper), _changed(str.lower), _changed(str.title)
_FOLDED = _changed(str.casefold)
_HEX_DIGITS = list("0123456789abcdef")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def _members(tests: Iterable[bool]) -> Callable[[str], bool]:
    """Return the function that says whether a character is one of those for which a test is true."""
    found = list(tests)
    bounds = list(map(ord, compress(_CHARACTERS, map(ne, found, [False, *found[:-1]]))))
    many = len(bounds)

    def member(one: str) -> bool:
        place = ord(one)
        low = 0
        high = many
        while low < high:
            middle = (low + high) // 2
            if bounds[middle] <= place:
                low = middle + 1
            else:
                high = middle
        return low % 2 == 1

    return member


_CATEGORIES = list(map(unicodedata.category, _CHARACTERS))
is_letter = _members(map(str.isalpha, _CHARACTERS))
is_letter_or_number = _members(map(str.isalnum, _CHARACTERS))
is_capital = _members(map(str.isupper, _CHARACTERS))
is_small = _members(map(str.islower, _CHARACTERS))
is_title = _members(one == "Lt" for one in _CATEGORIES)
is_cased = _members(one.isupper() or one.islower() or one.istitle() for one in _CHARACTERS)
is_ignored = _members(
    category in _IGNORED_CATEGORIES or one in _IGNORED
    for one, category in zip(_CHARACTERS, _CATEGORIES, strict=True)
)
is_printable = _members(map(str.isprintable, _CHARACTERS))


def small_at(own: list[str], at: int) -> str:
    """Return the small letter of a character: a sigma at the end of a word is another one."""
    if own[at] != "Σ":
        return _SMALL.get(own[at], own[at])
    before = at - 1
    while before >= 0 and is_ignored(own[before]):
        before = before - 1
    behind = at + 1
    while behind < len(own) and is_ignored(own[behind]):
        behind = behind + 1
    if before >= 0 and is_cased(own[before]) and not (behind < len(own) and is_cased(own[behind])):
        return "ς"
    return "σ"


def in_capitals(text: str) -> str:
    """Return ``text.upper()``."""
    return concatenated([_CAPITALS.get(one, one) for one in characters(text)])


def in_small_letters(text: str) -> str:
    """Return ``text.lower()``."""
    own = characters(text)
    return concatenated([small_at(own, at) for at in range(len(own))])


def folded(text: str) -> str:
    """Return ``text.casefold()``."""
    return concatenated([_FOLDED.get(one, one) for one in characters(text)])


def capitalised(text: str) -> str:
    """Return ``text.capitalize()``."""
    own = characters(text)
    return concatenated(
        [_TITLES.get(own[at], own[at]) if at == 0 else small_at(own, at) for at in range(len(own))]
    )


def titled(text: str) -> str:
    """Return ``text.title()``."""
    own = characters(text)
    found: list[str] = []
    for at in range(len(own)):
        if at > 0 and is_cased(own[at - 1]):
            found.append(small_at(own, at))
        else:
            found.append(_TITLES.get(own[at], own[at]))
    return concatenated(found)


def are_letters(text: str) -> bool:
    """Return ``text.isalpha()``."""
    own = characters(text)
    for one in own:
        if not is_letter(one):
            return False
    return len(own) > 0


def are_letters_or_numbers(text: str) -> bool:
    """Return ``text.isalnum()``."""
    own = characters(text)
    for one in own:
        if not is_letter_or_number(one):
            return False
    return len(own) > 0


def are_capitals(text: str) -> bool:
    """Return ``text.isupper()``."""
    found = False
    for one in characters(text):
        if is_small(one) or is_title(one):
            return False
        if is_capital(one):
            found = True
    return found


def are_small(text: str) -> bool:
    """Return ``text.islower()``."""
    found = False
    for one in characters(text):
        if is_capital(one) or is_title(one):
            return False
        if is_small(one):
            found = True
    return found


def quoted(text: str) -> str:
    """Return ``repr(text)``."""
    own = characters(text)
    quote = "'"
    for one in own:
        if one == "'" and quote == "'":
            quote = '"'
        elif one == '"':
            quote = "both"
    if quote == "both":
        quote = "'"
    found = [quote]
    for one in own:
        if one == quote:
            found.append("\\")
            found.append(one)
        elif one in _SHORT:
            found.append(_SHORT[one])
        elif is_printable(one):
            found.append(one)
        else:
            found.append(escaped(ord(one)))
    found.append(quote)
    return concatenated(found)


def escaped(number: int) -> str:
    """Return a character that cannot be printed, by its number, as ``repr`` writes it."""
    begin = "\\U"
    digits = 8
    if number < 0x100:
        begin = "\\x"
        digits = 2
    elif number < 0x10000:
        begin = "\\u"
        digits = 4
    found = ""
    rest = number
    for _ in range(digits):
        found = _HEX_DIGITS[rest % 16] + found
        rest = rest // 16
    return begin + found


METHODS: dict[tuple[str, int], Callable[..., Any]] = {  # by how many arguments there are
    ("upper", 0): in_capitals,
    ("lower", 0): in_small_letters,
    ("casefold", 0): folded,
    ("capitalize", 0): capitalised,
    ("title", 0): titled,
    ("isalpha", 0): are_letters,
    ("isalnum", 0): are_letters_or_numbers,
    ("isupper", 0): are_capitals,
    ("islower", 0): are_small,
}
