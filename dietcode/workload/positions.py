"""Where in a spec's text a problem is."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from dietcode.errors import SpecError
from dietcode.workload.loader import TextError, compose
from dietcode.workload.text import field_path

MAX_BYTES = 1 << 16  # of a text: YAML is slow to read

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


class SpecFileError(SpecError):
    """A spec's file was refused; the message begins with ``FILE:LINE:COLUMN``.

    Parameters
    ----------
    source : str
        Names the file.
    error : SpecError
        What is wrong with it.
    problem : SpecProblem or None
        The same with its position; None where that is not known.
    """

    def __init__(self, source: str, error: SpecError, problem: SpecProblem | None) -> None:
        super().__init__(error.field, error.problem)
        where = source if problem is None else f"{source}:{problem.line}:{problem.column}"
        what = error.what if isinstance(error, TextError) else str(error)
        self.args = (f"{where}: {what}",)


def in_file(raw: bytes, source: str, error: SpecError) -> SpecFileError:
    """Add file, line and column to an error of a spec's file.

    Parameters
    ----------
    raw : bytes
        Its content; above 64 KiB, where reading it again takes seconds, the error gets the file alone.
    source : str
        Names the file.
    """
    problem = None
    if len(raw) <= MAX_BYTES and not (isinstance(error, TextError) and error.index is None):
        problem = locate(raw.decode(errors="replace"), error)
    return SpecFileError(source, error, problem)


def locate(text: str, error: SpecError, node: yaml.Node | None = None) -> SpecProblem:
    """Locate an error of a spec's text.

    Parameters
    ----------
    text : str
        The whole text, with its byte order mark if it has one.
    error : SpecError
        Of a field, or a `TextError`.
    node : yaml.Node, optional
        The text's, where it was composed before; it begins after the byte order mark.
    """
    shift = int(text.startswith("\ufeff"))  # which the parser removes
    if isinstance(error, TextError):
        index = min(shift + (error.index or 0), len(text))
        word = _WORD.match(text, index)
        end = index if word is None else word.end()
        return SpecProblem(None, error.what, *line_and_columns(text, index, end))
    root = node or compose(text[shift:])
    begin, end = (0, 0) if root is None else _marks(root, error)
    return SpecProblem(
        error.field or None, error.problem, *line_and_columns(text, shift + begin, shift + end)
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


def line_and_columns(text: str, begin: int, end: int) -> tuple[int, int, int]:
    """Return line, column and end column of the part of a text that is on its first line."""
    begin = max(0, min(begin, len(text)))
    line_begin = text.rfind("\n", 0, begin) + 1
    line_end = text.find("\n", begin)
    line_end = len(text) if line_end < 0 else line_end
    end = max(begin, min(end, line_end))
    line = text.count("\n", 0, begin) + 1
    return line, begin - line_begin + 1, end - line_begin + 1
