"""The problems of a spec's text and their positions, for editors that check while somebody types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from dietcode.errors import SpecError
from dietcode.workload.loader import TextError, compose, parse_marked
from dietcode.workload.parse import check_data
from dietcode.workload.spec import Spec
from dietcode.workload.text import field_path

MAX_BYTES = 1 << 16  # of a text: YAML is slow to read
MAX_PROBLEMS = 50

_SOURCE = "the spec"
_WORD = re.compile(r"[^\s,:\[\]{}]+|\S")
_OF_KEY = ("unknown field", "not an index", "given the name", "given the key")


@dataclass(frozen=True)
class SpecProblem:
    """One problem of a text.

    Attributes
    ----------
    field : str or None
        Dotted path, as ``shape_vars.T.min``; None where the text is neither YAML nor JSON.
    message : str
        One line: what was given and what is allowed.
    line, column, end_column : int
        Its position, counted from 1, in characters; the line ends with a line feed. `end_column` is the first
        column after it. A missing field has the position of the nearest one that holds it.
    """

    field: str | None
    message: str
    line: int
    column: int
    end_column: int


@dataclass(frozen=True)
class Checked:
    """The result of checking a text.

    Attributes
    ----------
    spec : Spec or None
        None where there are problems.
    data : dict or None
        The same as plain data; None where the text is no mapping.
    problems : tuple of SpecProblem
        The first is the one that submitting the text would raise.
    """

    spec: Spec | None
    data: dict[str, Any] | None
    problems: tuple[SpecProblem, ...]


def check_text(text: str) -> Checked:
    """Check the text of a spec, in YAML or JSON; never raises for what is in it.

    Parameters
    ----------
    text : str
        At most 64 KiB; aliases and whatever else `dietcode.workload.loader` refuses are problems.
    """
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        message = f"larger than 64 KiB; allowed: at most {MAX_BYTES} bytes here, `dietcode submit` takes more"
        return Checked(None, None, (SpecProblem(None, message, *_line_and_columns(text, 0, 0)),))
    shift = int(text.startswith("\ufeff"))  # which the parser removes
    try:
        parsed = parse_marked(text, _SOURCE)
    except TextError as error:
        index = min(shift + (error.index or 0), len(text))
        word = _WORD.match(text, index)
        end = index if word is None else word.end()
        return Checked(None, None, (SpecProblem(None, error.what, *_line_and_columns(text, index, end)),))
    except SpecError as error:  # of plain data: an infinite number, a key that is not text
        return Checked(None, None, (_located(text, shift, compose(text[shift:]), error),))
    found = check_data(parsed.data)
    if isinstance(found, Spec):
        return Checked(found, parsed.data, ())
    node = parsed.node or compose(text[shift:])
    problems = tuple(_located(text, shift, node, error) for error in found[:MAX_PROBLEMS])
    return Checked(None, parsed.data, problems)


def locate(text: str, error: SpecError) -> SpecProblem:
    """Locate a field that something else refuses, such as a limit, in a text that `check_text` accepts."""
    shift = int(text.startswith("\ufeff"))
    return _located(text, shift, compose(text[shift:]), error)


def _located(text: str, shift: int, root: yaml.Node | None, error: SpecError) -> SpecProblem:
    begin, end = (0, 0) if root is None else _marks(root, error)
    return SpecProblem(
        error.field or None, error.problem, *_line_and_columns(text, shift + begin, shift + end)
    )


def _marks(root: yaml.Node, error: SpecError) -> tuple[int, int]:
    """Return where a field begins and ends: its value if that is a scalar, else its key."""
    key: yaml.Node | None = None
    node, rest = root, error.field
    while rest:
        step = _descend(node, rest)
        if step is None:
            break
        key, node, rest = step
    is_value = isinstance(node, yaml.ScalarNode) and not rest and not error.problem.startswith(_OF_KEY)
    shown = node if is_value or key is None else key
    begin, end = shown.start_mark.index, shown.end_mark.index
    return begin, begin if shown is root and not is_value else end


def _descend(node: yaml.Node, path: str) -> tuple[yaml.Node | None, yaml.Node, str] | None:
    """Return key, value and the rest of a path, one level down; None where it leads no further.

    A name may have dots: the longest one that the path begins with counts.
    """
    found: tuple[int, yaml.Node | None, yaml.Node] | None = None
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = field_path([key.value]) if isinstance(key, yaml.ScalarNode) else ""
            if name and _leads(path, name) and (found is None or len(name) > found[0]):
                found = len(name), key, value
    elif isinstance(node, yaml.SequenceNode):
        name = path.partition(".")[0]
        if name.isdecimal() and int(name) < len(node.value):
            item = node.value[int(name)]
            found = len(name), item, item
    return None if found is None else (found[1], found[2], path[found[0] + 1 :])


def _leads(path: str, name: str) -> bool:
    return path == name or path.startswith(name + ".")


def _line_and_columns(text: str, begin: int, end: int) -> tuple[int, int, int]:
    """Return line, column and end column of the part of a text that is on its first line."""
    begin = max(0, min(begin, len(text)))
    line_begin = text.rfind("\n", 0, begin) + 1
    line_end = text.find("\n", begin)
    line_end = len(text) if line_end < 0 else line_end
    end = max(begin, min(end, line_end))
    line = text.count("\n", 0, begin) + 1
    return line, begin - line_begin + 1, end - line_begin + 1
