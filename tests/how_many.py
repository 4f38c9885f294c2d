"""How many examples a run tries: `make test` a third of the usual number, `make test-long` more."""

from __future__ import annotations

import os


def examples(usual: int) -> int:
    if os.environ.get("DIETCODE_TEST_BRIEF"):
        return -(-usual // 3)
    return usual * int(os.environ.get("DIETCODE_TEST_EXAMPLES", "1"))
