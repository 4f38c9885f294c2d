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
from dataclasses import dataclass
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


class TextError(SpecError):
    """The text of a spec is neither allowed YAML nor JSON.

    Parameters
    ----------
    source : str
        Names the text.
    what : str
        What is wrong, without the source.
    index : int or None
        Position in characters from the beginning; None where it is not known.
    where : str
        The same in words, in front of `what`.
    """

    def __init__(self, source: str, what: str, index: int | None = None, where: str = "") -> None:
        super().__init__("", f"{source}: {where}{what}")
        self.what, self.index = what, index


@dataclass(frozen=True)
class Parsed:
    """Plain data, and its positions in the text.

    Attributes
    ----------
    node : yaml.Node or None
        The document with its marks; None for JSON, see `compose`.
    """

    data: dict[str, Any]
    node: yaml.Node | None


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
        The text is refused; the message is one line.
    """
    return parse_marked(text, source).data


def parse_marked(text: str | bytes, source: str) -> Parsed:
    """Parse as `parse_data` does, and keep the position of each value in the text.

    Raises
    ------
    SpecError
        As for `parse_data`; a `TextError` where it belongs to no field.
    """
    source = one_line(source, 120)
    decoded = _decode(text, source)
    node: yaml.Node | None = None
    try:
        if decoded.lstrip()[:1] == "{":
            data, node = _parse_json(decoded)
        else:
            data, node = _parse_yaml(decoded)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        what = one_line(error.problem or error.context or "not YAML")
        raise TextError(source, what, None if mark is None else mark.index, where) from None
    except RecursionError:
        raise TextError(source, f"nested too deep; allowed: {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise TextError(source, f"neither YAML nor JSON: {one_line(str(error))}", error.pos) from None
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        index = getattr(error, "position", None)  # of a character that YAML does not allow
        raise TextError(source, f"neither YAML nor JSON: {one_line(str(error))}", index) from None
    if data is None:
        raise TextError(source, "the document is empty; allowed: a mapping of fields")
    if not isinstance(data, dict):
        raise TextError(source, f"given {clip(data)}; allowed: a mapping of fields")
    check_plain(data)
    return Parsed(data, node)


def compose(text: str) -> yaml.Node | None:
    """Return the positions of all values of a text; None where they are not known.

    YAML allows no tabs where JSON does: each counts as a space.
    """
    loader = _Loader(text.replace("\t", " "))
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    except (yaml.YAMLError, RecursionError, ValueError, LookupError):
        return None
    finally:
        loader.dispose()


_TOO_LARGE = 10**MAX_DIGITS


def _is_harmless(value: object) -> bool:
    """Return whether a value is one of most that there are; others are looked at with their path."""
    if isinstance(value, float | int):
        return bool(-_TOO_LARGE < value < _TOO_LARGE)  # not a number is neither
    return isinstance(value, str)


def check_plain(data: object, path: tuple[object, ...] = ()) -> None:
    """Refuse numbers that are not finite or too long, odd keys, and nesting deeper than 50.

    Raises
    ------
    SpecError
        With the path of what is refused.
    """
    if len(path) > MAX_DEPTH:
        raise SpecError(field_path(path[:4]) + "…", f"nested too deep; allowed: {MAX_DEPTH} levels")
    if isinstance(data, float) and not math.isfinite(data):
        raise SpecError(field_path(path), f"given {data}; allowed: finite numbers")
    if isinstance(data, int) and abs(data) >= _TOO_LARGE:
        raise SpecError(
            field_path(path), f"a number of more than {MAX_DIGITS} digits; allowed: at most 2**31 here"
        )
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str) and (isinstance(key, bool) or not isinstance(key, int)):
                raise SpecError(
                    field_path(path), f"given the key {clip(key)}; allowed: names and integers as keys"
                )
            if not _is_harmless(value):
                check_plain(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            check_plain(value, (*path, index))


def _decode(text: str | bytes, source: str) -> str:
    too_large = TextError(source, f"larger than 1 MiB; allowed: at most {MAX_BYTES} bytes")
    if len(text) > MAX_BYTES:
        raise too_large
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
        if len(raw) > MAX_BYTES:
            raise too_large
        return raw.decode("utf-8-sig")
    except UnicodeError as error:
        raise TextError(source, f"not UTF-8: {one_line(str(error))}") from None


def _parse_json(text: str) -> tuple[object, yaml.Node | None]:
    """Parse JSON, or YAML that happens to begin with a brace."""
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_int=_json_int, parse_constant=_json_constant)
        return data, None
    except json.JSONDecodeError as json_error:
        try:
            return _parse_yaml(text)
        except yaml.YAMLError:
            if (
                '"' in text.lstrip("{ \t\r\n")[:1]
            ):  # probably meant as JSON, whose parser has the better message
                raise json_error from None
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


def _parse_yaml(text: str) -> tuple[object, yaml.Node | None]:
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return None if node is None else loader.construct_document(node), node
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
