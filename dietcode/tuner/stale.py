"""Measurements of micro-kernels whose code is generated differently now: they hold no longer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.backends.protocol import Backend
from dietcode.errors import CandidateError
from dietcode.library.generator import generator_digest
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.problem import AnyProblem
from dietcode.workload.text import counted


def stale_line(backend: Backend, problem: AnyProblem, records: Records, target: Any) -> dict[str, Any] | None:
    """Return the line that makes records hold what was measured of code as it is generated now.

    Only what another generator measured is generated again, and compared by the digest of its source. What an
    earlier version measured has none, and is kept; a failure to build is tried again.

    Returns
    -------
    dict or None
        None where the records hold nothing else already.
    """
    generator = generator_digest()
    measured = records.measurements.values()
    others = [m for m in measured if (m.code or m.generator) and m.generator != generator]
    if not others:
        return None

    def is_stale(measured: Measurement) -> bool:
        if measured.code is None:
            return measured.error is not None
        try:
            return backend.code_digest(problem, target, measured.micro_kernel) != measured.code
        except CandidateError:
            return True

    stale = [m.micro_kernel.name for m in others if is_stale(m)]
    return {"kind": "generator", "digest": generator, "stale": stale}


def stale_message(line: Mapping[str, Any]) -> str:
    """Return one line that says what a line of `stale_line` drops."""
    return f"{counted(len(line['stale']), 'measurement')} of code that is generated differently now"
