"""Answers of a confined child, read without running anything that it wrote.

A pickle names functions and has them called: what runs generated code could leave its confinement by one.
So an answer may hold plain values and the records below, and nothing else. It is written with few of a
pickle's operations, and others are refused before any of it is read: they alter the classes of whoever
reads, or have ten bytes take gigabytes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from dataclasses import fields
from typing import Any

_RECORDS = {
    "dietcode.measure.requests": {"BuildResult", "CheckResult", "TimeResult"},
    "dietcode.target.cubin": {"KernelFacts"},
}


_OPERATIONS = frozenset(
    {
        "PROTO",
        "FRAME",
        "STOP",
        "MEMOIZE",
        "BINGET",
        "LONG_BINGET",
        "MARK",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "LONG4",
        "BINFLOAT",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_DICT",
        "SETITEM",
        "SETITEMS",
        "EMPTY_SET",
        "ADDITEMS",
        "FROZENSET",
        "STACK_GLOBAL",
        "REDUCE",
    }
)
_MAX_OPERATIONS = 1_000_000  # each takes at most a few hundred bytes


class _AnswerWriter(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Write a record as a call of its class, which is all that a reader takes."""
        kind = type(value)
        if kind.__name__ in _RECORDS.get(kind.__module__, ()):
            return kind, tuple(getattr(value, field.name) for field in fields(kind))
        return NotImplemented


class _Answer(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _RECORDS.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"an answer of a child holds {module}.{name}, which none may hold"[:300])


def write_answer(returned: bool, value: object) -> bytes:
    """Return an answer that `read_answer` reads.

    Parameters
    ----------
    returned : bool
        Whether the call returned.
    value : object
        Its result, or the line that is said of its error.

    Raises
    ------
    pickle.PicklingError, TypeError, AttributeError
        It is no data.
    """
    file = io.BytesIO()
    _AnswerWriter(file, protocol=5).dump((returned, value))
    return file.getvalue()


def read_answer(data: bytes) -> tuple[bool, Any]:
    """Return whether the call returned, and its result or what is said of its error.

    Raises
    ------
    ChildProcessError
        It is no answer.
    """
    try:
        _check_operations(data)
        returned, value = _Answer(io.BytesIO(data)).load()
    except Exception as error:  # a torn or invented pickle raises nearly anything
        raise ChildProcessError(f"the child gave no answer that can be read: {error}"[:300]) from error
    if not isinstance(returned, bool) or not (returned or isinstance(value, str)):
        raise ChildProcessError("the child gave no answer that can be read: its form is wrong")
    return returned, value


def _check_operations(data: bytes) -> None:
    for num, (operation, _, _) in enumerate(pickletools.genops(data)):
        if operation.name not in _OPERATIONS:
            raise pickle.UnpicklingError(f"it is written with {operation.name}")
        if num >= _MAX_OPERATIONS:
            raise pickle.UnpicklingError(f"it has more than {_MAX_OPERATIONS} values")
