"""Weights and joint instances from a histogram file: JSON Lines, as a serving log gives them.

Each line is a shape and how often it occurred: ``{"B": 4, "T": 37, "count": 12}``; without count, once. The
same shape may be in several lines. Other names in a line are ignored.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import SpecError
from dietcode.workload.text import clip, field_path, one_line
from dietcode.workload.thinning import thin

MAX_BYTES = 256 << 20
MAX_SHAPES = 1_000_000  # different ones in a file
MAX_KEPT = 8192  # of a file; with them a spec stays below the server's 1 MiB
_MAX_LINE_BYTES = 64 << 10
_MAX_VALUE = 2**31
_MASK = 2**32 - 1


def inline_histograms(data: dict[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return spec data with each ``weights: FILE`` and ``instances: FILE`` replaced by the file's content.

    A file of more than `MAX_KEPT` different shapes is thinned to that many, see `dietcode.workload.thinning`.

    Parameters
    ----------
    folder : path
        The spec's, to which paths are relative.

    Raises
    ------
    SpecError
        A file is missing, too large, or holds no histogram of its variables.
    """
    variables = data.get("shape_vars")
    if not isinstance(variables, Mapping):
        return data
    inlined = dict(variables)
    for name, variable in variables.items():
        if isinstance(variable, Mapping) and isinstance(variable.get("weights"), str):
            path, field = Path(folder) / variable["weights"], field_path(["shape_vars", name, "weights"])
            weights = {value: weight for (value,), weight in read_histogram(path, field, {name: variable})}
            inlined[name] = {**variable, "weights": weights}
    data = {**data, "shape_vars": inlined}
    if isinstance(data.get("instances"), str):
        data["instances"] = [
            dict(zip(variables, shape, strict=True)) | {"weight": count}
            for shape, count in read_histogram(Path(folder) / data["instances"], "instances", variables)
        ]
    return data


def read_histogram(
    path: Path, field: str, variables: Mapping[str, Any]
) -> list[tuple[tuple[int, ...], int | float]]:
    """Count how often each shape occurs; return the shapes in ascending order, each with its count.

    Parameters
    ----------
    field : str
        Path of the field that names the file, for messages.
    variables : mapping of str to anything
        The shape variables that a line must have, as the spec declares them.

    Raises
    ------
    SpecError
        The file cannot be read, or a line of it is refused.
    """
    shown = one_line(str(path), 120)
    reader = _HistogramReader(field, shown, tuple(variables), tuple(_declared(v) for v in variables.values()))
    counts: Counter[int] = Counter()  # by packed shape: a million tuples would take twice the memory
    try:
        for number, line in _lines(path, field):
            shape, count = reader.entry(line, number)
            counts[_packed(shape)] += count
            if len(counts) > MAX_SHAPES:
                raise SpecError(field, f"{shown}: more than {MAX_SHAPES} different shapes; give fewer")
    except OSError as error:
        kinds = "a list of bindings" if field == "instances" else "a mapping of value: weight"
        problem = f"{shown}: {error.strerror or error}; allowed: {kinds}, or a JSON Lines file of"
        raise SpecError(field, f"{problem} {reader.example}") from None
    if not counts:
        raise SpecError(field, f"{shown}: holds no shapes")
    keys = sorted(counts)  # the order of the lines does not matter
    axes = [32 * bit for bit in reversed(range(len(variables)))]
    columns = (np.fromiter((key >> shift & _MASK for key in keys), np.int64, len(keys)) for shift in axes)
    shapes = np.stack(list(columns), axis=1)
    if len(keys) <= MAX_KEPT or not counts.total():
        return [(tuple(row), counts[key]) for row, key in zip(shapes.tolist(), keys, strict=True)]
    kept, weights = thin(shapes, np.fromiter((counts[key] for key in keys), np.float64, len(keys)), MAX_KEPT)
    return [(tuple(row), weight) for row, weight in zip(shapes[kept].tolist(), weights.tolist(), strict=True)]


def _packed(shape: tuple[int, ...]) -> int:
    """Pack a shape into one integer; integers have the order of the shapes."""
    key = 0
    for value in shape:
        key = key << 32 | value
    return key


def _declared(variable: object) -> Container[int] | None:
    """Return a variable's allowed values, to refuse a line by number; None if the spec is refused later."""
    if not isinstance(variable, Mapping):
        return None
    values, low, high = variable.get("values"), variable.get("min"), variable.get("max")
    if isinstance(values, list) and all(type(value) is int for value in values):
        return frozenset(values)
    return range(low, high + 1) if type(low) is int and type(high) is int else None


def _lines(path: Path, field: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers."""
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


@dataclass(frozen=True)
class _HistogramReader:
    """Reads the lines of one file."""

    field: str
    shown: str
    names: Sequence[str]
    declared: Sequence[Container[int] | None]

    @property
    def example(self) -> str:
        """An example of a line."""
        return json.dumps(dict.fromkeys(map(str, self.names), 37) | {"count": 12})

    def entry(self, line: bytes, number: int) -> tuple[tuple[int, ...], int]:
        """Return the shape and the count of one line."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise self._refused(number, "not JSON") from None
        if not isinstance(entry, dict):
            raise self._refused(number, f"says nothing of {self.names[0]}")
        shape = tuple(self._value(entry, name, number) for name in self.names)
        count = entry.get("count", 1)
        if type(count) is not int or not 0 <= count < _MAX_VALUE:
            raise self._refused(number, f"given {clip(count)} as count")
        for name, value, declared in zip(self.names, shape, self.declared, strict=True):
            if declared is not None and value not in declared:
                allowed = _words(declared)
                raise SpecError(
                    self.field,
                    f"{self.shown}: line {number}: given {value} for {clip(name)}; allowed: {allowed}",
                )
        return shape, count

    def _value(self, entry: dict[str, Any], name: str, number: int) -> int:
        if name not in entry:
            raise self._refused(number, f"says nothing of {one_line(str(name), 40)}")
        value = entry[name]
        if type(value) is not int or not 1 <= value <= _MAX_VALUE:
            raise self._refused(number, f"given {clip(value)}")
        return value

    def _refused(self, number: int, problem: str) -> SpecError:
        where = f"{self.shown}: line {number}: {problem}"
        return SpecError(self.field, f"{where}; allowed: {self.example}, in whole numbers")


def _words(declared: Container[int]) -> str:
    if isinstance(declared, range):
        return f"{declared.start} to {declared.stop - 1}"
    return f"one of {clip(sorted(declared))}" if isinstance(declared, frozenset) else "its values"
