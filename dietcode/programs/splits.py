"""Texts that a program takes into pieces, in the words that programs may have.

These functions are compiled as those of `dietcode.programs.texts` are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dietcode.runtime.programs.instances import characters, concatenated

SPACES = [one for one in map(chr, range(0x3001)) if one.isspace()]  # there are none behind


def split(text: str) -> list[str]:
    """Return ``text.split()``."""
    found: list[str] = []
    word: list[str] = []
    for one in characters(text):
        if one not in SPACES:
            word.append(one)
        elif len(word) > 0:
            found.append(concatenated(word))
            word = []
    if len(word) > 0:
        found.append(concatenated(word))
    return found


def split_at(text: str, piece: str) -> list[str]:
    """Return ``text.split(piece)``."""
    own = characters(text)
    many = len(characters(piece))
    if many == 0:
        raise ValueError("empty separator")
    found: list[str] = []
    begin = 0
    at = 0
    while at + many <= len(own):
        if concatenated(own[at : at + many]) == piece:
            found.append(concatenated(own[begin:at]))
            at = at + many
            begin = at
        else:
            at = at + 1
    found.append(concatenated(own[begin:]))
    return found


def split_some(text: str, piece: str, most: int) -> list[str]:
    """Return ``text.split(piece, most)``."""
    found = split_at(text, piece)
    if most < 0 or len(found) <= most + 1:
        return found
    rest: list[str] = []
    for at in range(most, len(found)):
        if at > most:
            rest.append(piece)
        rest.append(found[at])
    return [*found[:most], concatenated(rest)]


def split_last(text: str, piece: str, most: int) -> list[str]:
    """Return ``text.rsplit(piece, most)``."""
    own = characters(text)
    many = len(characters(piece))
    if many == 0:
        raise ValueError("empty separator")
    found: list[str] = []
    end = len(own)
    at = end - many
    while at >= 0 and (most < 0 or len(found) < most):
        if concatenated(own[at : at + many]) == piece:
            found.append(concatenated(own[at + many : end]))
            end = at
            at = at - many
        else:
            at = at - 1
    found.append(concatenated(own[:end]))
    return found[::-1]


def split_from_end(text: str, piece: str) -> list[str]:
    """Return ``text.rsplit(piece)``: pieces that overlap are found from the end."""
    return split_last(text, piece, -1)


def words_of(text: str, piece: None, most: int) -> list[str]:
    """Return ``text.split(None, most)``."""
    own = characters(text)
    found: list[str] = []
    at = 0
    while at < len(own) and own[at] in SPACES:
        at = at + 1
    while at < len(own) and (most < 0 or len(found) < most):
        begin = at
        while at < len(own) and own[at] not in SPACES:
            at = at + 1
        found.append(concatenated(own[begin:at]))
        while at < len(own) and own[at] in SPACES:
            at = at + 1
    if at < len(own):  # Python keeps the spaces behind what it does not split
        found.append(concatenated(own[at:]))
    return found


def replaced_some(text: str, piece: str, other: str, most: int) -> str:
    """Return ``text.replace(piece, other, most)`` of a piece that is not empty."""
    found: list[str] = []
    pieces = split_some(text, piece, most)
    for one in pieces:
        if len(found) > 0:
            found.append(other)
        found.append(one)
    return concatenated(found)


METHODS: dict[tuple[str, int], Callable[..., Any]] = {  # by how many arguments there are
    ("split", 0): split,
    ("split", 1): split_at,
    ("split", 2): split_some,
    ("rsplit", 0): split,
    ("rsplit", 1): split_from_end,
    ("rsplit", 2): split_last,
    ("replace", 3): replaced_some,
}
