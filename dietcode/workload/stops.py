"""Why a search ended, in the words that records and reports have."""

from __future__ import annotations

CONVERGED, STALLED, EXHAUSTED, TRIALS, SECONDS = "converged", "stalled", "exhausted", "trials", "seconds"
ENDS = (CONVERGED, STALLED, EXHAUSTED)
"""Reasons after which a later run has nothing to add."""
