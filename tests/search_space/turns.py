"""Which vector units a case runs on: all where there is time, else one, in turn from case to case."""

from __future__ import annotations

import os

from compiled import cpu_target

TARGETS = ("haswell", "skylake-avx512")
_ALL = bool(os.environ.get("DIETCODE_TEST_LONG"))


def units_of(case: int) -> list[str]:
    """Vector units of this CPU that the case of this number runs on; none where it has none of them."""
    here = [mcpu for mcpu in TARGETS if cpu_target(mcpu).runs_here]
    return here if _ALL or not here else [here[case % len(here)]]
