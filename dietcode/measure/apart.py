"""One call in a confined process of its own: for what is compiled of a stranger's spec beside candidates."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from dietcode.confinement import MEMORY_BYTES, confine
from dietcode.errors import CandidateError, DietCodeError, TargetError, TuningError
from dietcode.lifeline import die_with_parent
from dietcode.measure.child_process import what_is_said
from dietcode.measure.process_pool import CalledProcess

TIMEOUT_SECS = 1800.0
_ERRORS: dict[str, type[DietCodeError]] = {
    kind.__name__: kind for kind in (CandidateError, TargetError, TuningError)
}


def call_apart(function: Callable[..., Any], *arguments: Any, timeout_secs: float = TIMEOUT_SECS) -> Any:
    """Return the result of a function that was called in a confined process.

    Parameters
    ----------
    function : callable
        Of a module. Its result is plain data, or records that `dietcode.measure.answers` knows; what ran
        generated code may have written it, so the caller checks its form.
    arguments
        Plain data, or values that can be pickled.
    timeout_secs : float
        After which the process is ended; it may use as many seconds of each core.

    Raises
    ------
    CandidateError, TargetError, TuningError
        As the function raises them; `TuningError` too where it raises another error, or ends its process.
    """
    with tempfile.TemporaryDirectory(prefix="dietcode-apart-", ignore_cleanup_errors=True) as temporary:
        process = CalledProcess(_start, (temporary, timeout_secs))
        try:
            process.send(_call, (function, arguments))
            answer = process.recv(timeout_secs)
        except TimeoutError:
            raise TuningError(f"compiling took longer than {timeout_secs:.0f} s and was ended") from None
        except Exception as error:
            raise TuningError(what_is_said(error)) from error
        finally:
            process.kill()
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], str):
        raise TuningError("the process that compiles gave an answer of another kind")
    raised, value = answer
    if raised:
        raise _ERRORS.get(raised, TuningError)(str(value)[:1000])
    return value


def _start(temporary: str, secs: float) -> None:
    """Confine the process, whose seconds of CPU are bounded too: it answers one call."""
    die_with_parent()
    confine(MEMORY_BYTES, temporary, max_cpu_secs=round(secs) * (os.cpu_count() or 1))


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """Return the name of the error that it raises, else an empty one; and what is said, or its result."""
    try:
        return "", function(*arguments)
    except tuple(_ERRORS.values()) as error:
        return type(error).__name__, str(error)
