"""From the text of a spec to plain data: a bounded subset of YAML, or JSON.

Refused, because pure data needs none of them: anchors and aliases, tags, duplicate keys, and the plain
scalars that YAML 1.1 turns into something unexpected (``on`` a boolean, ``1:30`` the number 90, ``010`` the
number 8).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from typing import Any

import yaml

from dietcode.errors import RequestError, SpecError
from dietcode.workload.text import clip, field_path, one_line

MAX_BYTES = 2**20
MAX_DEPTH = 50
MAX_DIGITS = 20

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE)
_PREFIX = "tag:yaml.org,2002:"
_WHAT = {
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "timestamp": "a date",
    "merge": "a merge key",
}


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a spec file, at most 1 MiB of it.

    Raises
    ------
    RequestError
        The file is missing, unreadable or not a file.
    SpecError
        It is larger than 1 MiB.
    """
    shown = one_line(str(path), 120)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - Path.open would refuse nothing more
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise SpecError("", f"{shown}: a directory; allowed: a YAML or JSON file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"{shown}: cannot read the spec: {one_line(reason)}") from None
    if len(data) > MAX_BYTES:
        raise SpecError("", f"{shown}: larger than 1 MiB; allowed: at most {MAX_BYTES} bytes")
    return data


def parse_data(text: str | bytes, source: str) -> dict[str, Any]:
    """Parse YAML or JSON text into a mapping of plain data.

    Parameters
    ----------
    text : str or bytes
        UTF-8, at most 1 MiB, nested at most 50 deep.
    source : str
        Named by errors that belong to no field.

    Raises
    ------
    SpecError
        Anything is wrong with the text; the message is one line.
    """
    source = one_line(source, 120)
    decoded = _decode(text, source)
    try:
        data = _parse_json(decoded) if decoded.lstrip()[:1] == "{" else _parse_yaml(decoded)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise SpecError(
            "", f"{source}: {where}{one_line(error.problem or error.context or 'not YAML')}"
        ) from None
    except RecursionError:
        raise SpecError("", f"{source}: nested too deep; allowed: {MAX_DEPTH} levels") from None
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise SpecError("", f"{source}: neither YAML nor JSON: {one_line(str(error))}") from None
    if data is None:
        raise SpecError("", f"{source}: the document is empty; allowed: a mapping of fields")
    if not isinstance(data, dict):
        raise SpecError("", f"{source}: given {clip(data)}; allowed: a mapping of fields")
    check_plain(data)
    return data


def check_plain(data: object, path: tuple[object, ...] = ()) -> None:
    """Refuse numbers that are not finite or too long, odd keys, and nesting deeper than 50.

    Raises
    ------
    SpecError
        With the path of what was found.
    """
    if len(path) > MAX_DEPTH:
        raise SpecError(field_path(path[:4]) + "…", f"nested too deep; allowed: {MAX_DEPTH} levels")
    if isinstance(data, float) and not math.isfinite(data):
        raise SpecError(field_path(path), f"given {data}; allowed: finite numbers")
    if isinstance(data, int) and abs(data) >= 10**MAX_DIGITS:
        raise SpecError(
            field_path(path), f"a number of more than {MAX_DIGITS} digits; allowed: at most 2**31 here"
        )
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str) and (isinstance(key, bool) or not isinstance(key, int)):
                raise SpecError(
                    field_path(path), f"given the key {clip(key)}; allowed: names and integers as keys"
                )
            check_plain(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            check_plain(value, (*path, index))


def _decode(text: str | bytes, source: str) -> str:
    too_large = SpecError("", f"{source}: larger than 1 MiB; allowed: at most {MAX_BYTES} bytes")
    if len(text) > MAX_BYTES:
        raise too_large
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
        if len(raw) > MAX_BYTES:
            raise too_large
        return raw.decode("utf-8-sig")
    except UnicodeError as error:
        raise SpecError("", f"{source}: not UTF-8: {one_line(str(error))}") from None


def _parse_json(text: str) -> object:
    """Parse JSON, or YAML that happens to begin with a brace."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_json_int, parse_constant=_json_constant)
    except json.JSONDecodeError as json_error:
        try:
            return _parse_yaml(text)
        except yaml.YAMLError:
            if '"' in text.lstrip("{ \t\r\n")[:1]:  # it was meant as JSON: that parser's message helps more
                raise ValueError(str(json_error)) from None
            raise


def _unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise SpecError(field_path([key]), "given twice in one mapping; allowed: once")
        result[key] = value
    return result


def _json_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise SpecError("", f"given {clip(digits)}; allowed: numbers of at most {MAX_DIGITS} digits")
    return int(digits)


def _json_constant(name: str) -> float:
    raise SpecError("", f"given {name}; allowed: finite numbers")


def _parse_yaml(text: str) -> object:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """SafeLoader for pure data: no anchors, aliases, tags or duplicate keys, bounded depth."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nesting = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refusal("anchors and aliases are refused; allowed: the value written out", event)
        if getattr(event, "tag", None) is not None:
            raise _refusal(f"the tag {clip(event.tag)} is refused; allowed: plain values", event)
        if self._nesting > MAX_DEPTH:
            raise _refusal(f"nested too deep; allowed: {MAX_DEPTH} levels", event)
        self._nesting += 1
        node = super().compose_node(parent, index)
        self._nesting -= 1
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, bool) or not isinstance(key, str | int):
                shown = clip(key_node.value if isinstance(key_node, yaml.ScalarNode) else key)
                raise _refusal(
                    f"the key {shown} is neither a name nor an integer; write it in quotes", key_node
                )
            if key in result:
                raise _refusal(f"the key {clip(key)} is given twice in one mapping; allowed: once", key_node)
            result[key] = self.construct_object(value_node, deep=deep)
        return result


# YAML 1.1 reads 1e3 as text, JSON and YAML 1.2 as a number.
_Loader.add_implicit_resolver(
    _PREFIX + "float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


def _check_scalar(node: yaml.ScalarNode) -> None:
    """Refuse a plain scalar that YAML 1.1 reads as something other than it looks like."""
    kind = node.tag.removeprefix(_PREFIX)
    text = str(node.value)
    looks_right = {
        "str": True,
        "null": True,
        "bool": text.lower() in {"true", "false"},
        "int": _INTEGER.fullmatch(text) is not None and len(text) <= MAX_DIGITS,
        "float": (_FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text)) is not None,
    }
    if not looks_right.get(kind, False):
        what = _WHAT.get(kind, kind)
        if kind in {"int", "float"}:
            advice = "write a plain decimal number, or a text in quotes"
        else:
            advice = f'write "{one_line(text, 30)}" in quotes'
        raise _refusal(f"{clip(text)} is {what} in YAML; {advice}", node)


def _refusal(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)
