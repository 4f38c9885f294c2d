"""Classes of objects, and which kinds of the machine's values are of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from dietcode.programs.dictionaries import Dictionary
from dietcode.programs.sets import MemberSet
from dietcode.programs.sources import Statics
from dietcode.runtime.programs.code import RECORD_KINDS
from dietcode.runtime.programs.machine import BOOL, FLOAT, INT, LIST, NONE, TENSOR, TEXT, TUPLE

_OF_PYTHON: dict[type, type] = {Dictionary: dict, MemberSet: set}
_BUILTIN: dict[type, int] = {
    type(None): NONE,
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: TEXT,
    tuple: TUPLE,
    list: LIST,
}


def types_of(given: Any) -> tuple[type, ...] | None:
    """Return the types that the second argument of ``isinstance`` names; None where it is none."""
    if isinstance(given, tuple):
        parts = [types_of(one) for one in given]
        return None if any(one is None for one in parts) else tuple(t for one in parts for t in one or ())
    members = getattr(given, "__args__", None)
    if members is not None and not isinstance(given, type):  # int | None, Union[int, None]
        return types_of(tuple(members))
    return (given,) if isinstance(given, type) else None


def named_types(node: ast.expr, statics: Statics) -> tuple[type, ...] | None:
    """Return the types that an expression names, as ``A``, ``(A, B)`` and ``A | B``; None for any other."""
    is_either = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) and is_either else None
    parts = node.elts if isinstance(node, ast.Tuple) else parts
    if parts is None:
        return types_of(statics.find(node)[1])
    found = [named_types(one, statics) for one in parts]
    return None if any(one is None for one in found) else tuple(t for one in found for t in one or ())


def kinds_of(types: tuple[type, ...], classes: Mapping[str, type]) -> list[int]:
    """Return the kinds of values, as the machine numbers them, that are of some types.

    Parameters
    ----------
    types : tuple of type
    classes : mapping of str to type
        Of the program's records, in their order.
    """
    return sorted(set(_kinds(types, classes)))


def _kinds(types: tuple[type, ...], classes: Mapping[str, type]) -> Iterator[int]:
    import torch

    for own, kind in _BUILTIN.items():
        if issubclass(own, types):
            yield kind
    if issubclass(torch.Tensor, types):
        yield TENSOR
    for number, own in enumerate(classes.values()):
        if issubclass(_OF_PYTHON.get(own, own), types):
            yield RECORD_KINDS + number
