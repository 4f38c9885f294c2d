"""What `conftest.py` asks of pytest-xdist: the tests of a file stay in one process."""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize("turn", range(2))
def test_a_file_is_a_group(request: pytest.FixtureRequest, turn: int) -> None:
    """The scheduler reads the group at the end of a test's name (pytest 9.2 left it out without a word)."""
    del turn
    in_processes = "PYTEST_XDIST_WORKER" in os.environ
    assert request.node.nodeid.endswith("@test_groups.py") == in_processes
