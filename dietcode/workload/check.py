"""All problems of a spec's text at once, each with its position: for editors, and for ``dietcode check``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietcode.errors import SpecError
from dietcode.workload.histogram import inline_histograms
from dietcode.workload.loader import MAX_BYTES as MAX_FILE_BYTES
from dietcode.workload.loader import parse_marked
from dietcode.workload.parse import check_data
from dietcode.workload.positions import MAX_BYTES, SpecProblem, line_and_columns, locate
from dietcode.workload.spec import Spec
from dietcode.workload.text import field_path

MAX_PROBLEMS = 50

_SOURCE = "the spec"


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
        return _unreadable(SpecProblem(None, message, *line_and_columns(text, 0, 0)))
    return _check(text, None)


def check_file(raw: bytes, folder: Path) -> Checked:
    """Check the content of a spec's file; never raises for what is in it.

    Parameters
    ----------
    raw : bytes
        At most 1 MiB.
    folder : Path
        The file's, where its histogram files are.
    """
    if len(raw) > MAX_FILE_BYTES:
        return _unreadable(
            SpecProblem(None, f"larger than 1 MiB; allowed: at most {MAX_FILE_BYTES} bytes", 1, 1, 1)
        )
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        message = f"not UTF-8: the byte {raw[error.start]:#04x}"
        return _unreadable(SpecProblem(None, message, *line_and_columns(before, len(before), len(before))))
    return _check(text, folder)


def _unreadable(problem: SpecProblem) -> Checked:
    return Checked(None, None, (problem,))


def _check(text: str, folder: Path | None) -> Checked:
    try:
        parsed = parse_marked(text, _SOURCE)
    except SpecError as error:  # a `TextError`, or one of plain data: an infinite number, an odd key
        return _unreadable(locate(text, error))
    data, errors = (parsed.data, []) if folder is None else _with_histograms(parsed.data, folder)
    found = check_data(data)
    if isinstance(found, list):
        errors += found
    elif not errors:
        return Checked(found, data, ())
    problems = tuple(locate(text, error, parsed.node) for error in errors[:MAX_PROBLEMS])
    return Checked(None, data, problems)


def _with_histograms(data: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[SpecError]]:
    """Return data with its histogram files in it, without those that are refused, and why they are."""
    errors: list[SpecError] = []
    while True:
        try:
            return inline_histograms(data, folder), errors
        except SpecError as error:
            errors.append(error)
            data = _without(data, error.field)


def _without(data: dict[str, Any], field: str) -> dict[str, Any]:
    """Return data without a field that names a histogram file."""
    if field == "instances":
        return {name: value for name, value in data.items() if name != field}
    variables = {
        name: {key: value for key, value in variable.items() if key != "weights"}
        if field == field_path(["shape_vars", name, "weights"])
        else variable
        for name, variable in data["shape_vars"].items()
    }
    return {**data, "shape_vars": variables}
