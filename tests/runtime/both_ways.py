"""Calls that begin in C beside the same ones that begin in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dietcode
from dietcode.errors import DietCodeError


def load_both(folder: Path) -> tuple[Any, Any]:
    """A library whose calls begin in C, and one whose calls begin in Python."""
    in_c, in_python = dietcode.load(folder), dietcode.load(folder)
    assert in_c.compiled is not None
    in_python.compiled = None
    return in_c, in_python


def short(what: Any, *tensors: Any, **named: Any) -> Any:
    """The result of the way in C alone, or NotImplemented."""
    return what.compiled.attempt(tensors, named)


def outcome(call: Any) -> Any:
    """What a call returned, as bytes, or what it raised."""
    try:
        result = call()
    except DietCodeError as error:
        return type(error), str(error)
    if isinstance(result, tuple):
        return [type(result), *(outcome(lambda one=one: one) for one in result)]
    kind = type(result)
    array = result if kind is np.ndarray else result.numpy()
    return kind, array.dtype, array.shape, array.tobytes()
