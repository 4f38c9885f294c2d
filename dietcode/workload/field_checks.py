"""Checks of single fields of a spec; `spec_checks` has what several must agree on."""

from __future__ import annotations

import re

from dietcode.errors import SpecError
from dietcode.workload.expr import DimExpr
from dietcode.workload.text import clip, field_path

MAX_RANK = 6
MAX_EXTENT = 2**31
MAX_LISTED = 100_000
MAX_DIMS = 52  # letters there are

_EINSUM = re.compile(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]*)")
_INTEGER = re.compile(r"[1-9][0-9]{0,9}")


def canonical_einsum(text: str) -> str:
    """Return an einsum of two operands without spaces.

    Raises
    ------
    ValueError
        Not of the form ``mk,nk->mn``, an index repeated within a tensor, or a rank above 6.
    """
    match = _EINSUM.fullmatch(text.replace(" ", "")) if len(text) <= 100 else None
    if match is None:
        hint = (
            "an ellipsis is not supported"
            if "..." in text
            else "two operands and an output, one letter an axis"
        )
        raise ValueError(f"given {clip(text)}; {hint}; allowed: like mk,nk->mn")
    for indices in match.groups():
        if len(set(indices)) != len(indices):
            raise ValueError(f"given {clip(text)}; a letter is repeated in {indices!r}; allowed: each once")
        if len(indices) > MAX_RANK:
            raise ValueError(f"given {clip(text)}; allowed: at most {MAX_RANK} axes a tensor")
    return match[0]


def canonical_dims(given: object) -> object:
    """Return dims with an int for each constant and canonical text for each expression.

    Raises
    ------
    SpecError
        A value is no dimension, or is 0.
    """
    if not isinstance(given, dict):
        return given  # the model's own message will do
    if len(given) > MAX_DIMS:
        raise SpecError("dims", f"given {len(given)} dimensions; allowed: at most {MAX_DIMS}")
    result: dict[object, int | str] = {}
    for index, value in given.items():
        path = field_path(["dims", index])
        dim = DimExpr.parse(value, path)
        if not dim.terms:
            raise SpecError(path, f"given {clip(value)}, which is 0; allowed: at least 1")
        result[index] = dim.constant_value() if dim.is_constant else str(dim)
    return result


def no_file(given: object, allowed: str) -> object:
    """Return what is given, unless it names a histogram file: the loader of spec files reads those.

    Raises
    ------
    ValueError
        It is a text.
    """
    if isinstance(given, str):
        raise ValueError(
            f"given {clip(given)}; allowed: {allowed}; a histogram file only in a spec that is a file itself"
        )
    return given


def weights_by_value(given: object) -> object:
    """Return weights with integer keys; JSON writes them as text.

    Raises
    ------
    ValueError
        Not a mapping of at most 100000 positive integers, each once.
    """
    no_file(given, "a mapping of value: weight")
    if not isinstance(given, dict):
        return given
    if not given or len(given) > MAX_LISTED:
        raise ValueError(f"given {len(given)} weights; allowed: 1 to {MAX_LISTED}")
    result: dict[int, object] = {}
    for key, weight in given.items():
        if isinstance(key, str) and not _INTEGER.fullmatch(key):
            raise ValueError(f"given a weight for {clip(key)}; allowed: integers from 1")
        if int(key) in result:
            raise ValueError(f"given two weights for {clip(key)}; allowed: one for each value")
        result[int(key)] = weight
    return result
