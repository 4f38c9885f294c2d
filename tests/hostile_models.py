"""Models, recursions and programs of a stranger: each text markup, each number huge or negative."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from small_models import model_data
from small_programs import program_data
from small_recursions import recursion_data

from dietcode.errors import DietCodeError
from dietcode.graph.model_request import model_from_data
from dietcode.graph.program_model import ProgramModel
from dietcode.runtime.programs.form import check_form

KINDS = {"graph": model_data, "recursion": recursion_data, "program": program_data}
MARKUP = "<img src=x onerror=alert(1)>'\"&{{7*7}}:4"
HUGE: tuple[Any, ...] = (
    -1,
    2**31 - 1,
    2**63,
    10**30,
    1e308,
    "9" * 5000,
    "T*" * 2000 + "1",
    "2**99999999",
    [0] * 20_000,
    [2**40] * 6,
    {str(number): number for number in range(5000)},
)


def request_of(kind: str, name: str) -> dict[str, Any]:
    """A request for a small model of this kind, as it arrives."""
    made: dict[str, Any] = json.loads(json.dumps(KINDS[kind](name)))
    return made


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all values, those of lists and mappings too, but to the whole."""
    if path:
        yield path
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in children:
        yield from leaves(value, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The same data with one value replaced."""
    made = copy.deepcopy(data)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def at(data: Any, path: tuple[Any, ...]) -> Any:
    """A value within data."""
    for key in path:
        data = data[key]
    return data


def with_markup(data: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A request each of whose texts is markup as far as a server takes it, and how many are."""
    count = 0
    for path in [path for path in leaves(data) if isinstance(at(data, path), str)]:
        given = changed(data, path, MARKUP)
        try:
            content = model_from_data(given).content
            if isinstance(content, ProgramModel):
                check_form(content)
        except DietCodeError:
            continue
        data, count = given, count + 1
    return data, count
