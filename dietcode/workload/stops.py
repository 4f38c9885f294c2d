"""Why a search ended, in the words that records and reports have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONVERGED, STALLED, EXHAUSTED, TRIALS, SECONDS = "converged", "stalled", "exhausted", "trials", "seconds"
ENDS = (CONVERGED, STALLED, EXHAUSTED)
"""Reasons after which a later run has nothing to add."""


def cut_off_by(report: Mapping[str, Any]) -> str | None:
    """Return which limit of the budget ended the search of a report, `TRIALS` or `SECONDS`; None: neither."""
    rounds = report.get("rounds") or [{}]
    stop = rounds[-1].get("stop")
    return str(stop) if stop in (TRIALS, SECONDS) else None


def uncompared(report: Mapping[str, Any]) -> str:
    """Return why a predicted loss is not known, where only one micro-kernel was measured; '' elsewhere."""
    if report["space"]["measured"] > 1:
        return ""
    return "one micro-kernel was measured, which is compared with none; allow a larger budget"


def against(report: Mapping[str, Any]) -> str:
    """Return what a report's predicted loss is a loss against: no micro-kernel that was not measured."""
    stop = cut_off_by(report)
    return f"against the {report['space']['measured']} measured" + (
        f"; the budget's {stop} cut the search off" if stop else ""
    )
