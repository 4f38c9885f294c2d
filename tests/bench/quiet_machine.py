"""A machine that says of no reading that something disturbed it, as other tests run beside every test."""

from __future__ import annotations

import pytest

from dietcode.measure import disturbance


def nothing_disturbs(patch: pytest.MonkeyPatch) -> None:
    """Take every reading as it is, for what is tested here is no figure."""
    for limit in ("_MOST_OTHERS", "_MOST_SLOWER", "_MOST_SPREAD"):
        patch.setattr(disturbance, limit, float("inf"))
