"""Weights of shape variables from a histogram file: JSON Lines, as a serving log gives them.

Each line is a shape that was seen, and how often: ``{"T": 37, "count": 12}``; without ``count``, once. The
same shape may stand in several lines. Other names in a line are other shape variables and are ignored.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import SpecError
from dietcode.workload.text import clip, one_line

MAX_BYTES = 256 << 20
_MAX_LINE_BYTES = 64 << 10


def inline_histograms(data: dict[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The same spec data with each ``weights: FILE`` replaced by the weights in the file.

    Parameters
    ----------
    folder : path
        What relative paths are relative to: the spec's folder.

    Raises
    ------
    SpecError
        A file is missing, too large, or holds no histogram of its variable.
    """
    variables = data.get("shape_vars")
    if not isinstance(variables, Mapping):
        return data
    inlined = dict(variables)
    for name, variable in variables.items():
        if isinstance(variable, Mapping) and isinstance(variable.get("weights"), str):
            path = Path(folder) / variable["weights"]
            inlined[name] = {**variable, "weights": read_histogram(path, str(name))}
    return {**data, "shape_vars": inlined}


def read_histogram(path: Path, variable: str) -> dict[int, int]:
    """How often each value of one shape variable was seen.

    Raises
    ------
    SpecError
        It cannot be read, or a line is none of a histogram.
    """
    field = f"shape_vars.{variable}.weights"
    counts: Counter[int] = Counter()
    try:
        for number, line in _lines(path, field):
            value, count = _entry(line, variable, f"{one_line(str(path), 120)}: line {number}", field)
            counts[value] += count
    except OSError as error:
        raise SpecError(
            field,
            f"{one_line(str(path), 120)}: {error.strerror or error}; allowed: a mapping of value: weight, or "
            f'a JSON Lines file of {{"{variable}": 37, "count": 12}}',
        ) from None
    if not counts:
        raise SpecError(field, f"{one_line(str(path), 120)}: holds no shapes")
    return dict(sorted(counts.items()))


def _lines(path: Path, field: str) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank."""
    with path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size > MAX_BYTES:
            raise SpecError(field, f"{one_line(str(path), 120)}: larger than {MAX_BYTES >> 20} MiB")
        number = 0
        while line := stream.readline(_MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > _MAX_LINE_BYTES:
                raise SpecError(field, f"{one_line(str(path), 120)}: line {number}: longer than 64 KiB")
            if line.strip():
                yield number, line


def _entry(line: bytes, variable: str, where: str, field: str) -> tuple[int, int]:
    allowed = f'allowed: {{"{variable}": 37, "count": 12}}'
    try:
        entry = json.loads(line)
        value, count = entry[variable], entry.get("count", 1)
    except (ValueError, RecursionError):
        raise SpecError(field, f"{where}: not JSON; {allowed}") from None
    except (KeyError, TypeError, AttributeError):
        raise SpecError(field, f"{where}: says nothing of {variable}; {allowed}") from None
    for given, least in ((value, 1), (count, 0)):
        if type(given) is not int or given < least:
            raise SpecError(field, f"{where}: given {clip(given)}; {allowed}, in whole numbers")
    return value, count
