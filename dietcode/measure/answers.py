"""Answers of a confined child, read without running anything that it wrote.

A pickle names functions and has them called: what runs generated code could leave its confinement by one.
So an answer may hold plain values and the records below, and nothing else.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

_RECORDS = {
    "dietcode.measure.requests": {"BuildResult", "CheckResult", "TimeResult"},
    "dietcode.target.cubin": {"KernelFacts"},
}


class _Answer(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _RECORDS.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"an answer of a child holds {module}.{name}, which none may hold"[:300])


def read_answer(data: bytes) -> tuple[bool, Any]:
    """Return whether the call returned, and its result or what is said of its error.

    Raises
    ------
    ChildProcessError
        It is no answer.
    """
    try:
        returned, value = _Answer(io.BytesIO(data)).load()
    except Exception as error:  # a torn or invented pickle raises nearly anything
        raise ChildProcessError(f"the child gave no answer that can be read: {error}"[:300]) from error
    if not isinstance(returned, bool) or not (returned or isinstance(value, str)):
        raise ChildProcessError("the child gave no answer that can be read: its form is wrong")
    return returned, value
