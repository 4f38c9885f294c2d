"""Fields of plain data that anybody may have written: each is returned, or refused by a ModelError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import ModelError
from dietcode.workload.text import clip

_MAX_TEXT = 400


def read_mapping(data: Any, field: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    """Return a mapping with no other keys than those that are allowed; `field` is "" for all of the data."""
    if not isinstance(data, Mapping):
        where = f"{field}: " if field else ""
        raise ModelError(f"{where}given {clip(data)}; allowed: a mapping of {', '.join(allowed)}")
    for key in data:
        if key not in allowed:
            where = f"{field}." if field else ""
            raise ModelError(f"{where}{clip(key)}: unknown field; allowed: {', '.join(allowed)}")
    return data


def read_list(data: Any, field: str, most: int) -> list[Any]:
    """Return a list of at most `most`."""
    if not isinstance(data, list) or len(data) > most:
        raise ModelError(f"{field}: given {clip(data)}; allowed: a list of at most {most}")
    return data


def read_text(value: Any, field: str) -> str:
    """Return a short text."""
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ModelError(f"{field}: given {clip(value)}; allowed: a text of up to {_MAX_TEXT} characters")
    return value


def read_name(value: Any) -> str:
    """Return the name of a model."""
    if not isinstance(value, str) or not value:
        raise ModelError(f"name: given {clip(value)}; allowed: a name")
    return value


def read_whole(value: Any, field: str, low: int, high: int) -> int:
    """Return a whole number of a range."""
    if type(value) is not int or not low <= value <= high:
        raise ModelError(f"{field}: given {clip(value)}; allowed: {low} to {high}")
    return value
