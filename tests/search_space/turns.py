"""Which vector units a case runs on: all where there is time, else one, in turn from case to case."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from compiled import cpu_target

TARGETS = ("haswell", "skylake-avx512")
ALL = bool(os.environ.get("DIETCODE_TEST_LONG"))
_FEW = 2  # compiling micro-kernels is what takes the time
Each = TypeVar("Each")


def units_of(case: int) -> list[str]:
    """Vector units of this CPU that the case of this number runs on; none where it has none of them."""
    here = [mcpu for mcpu in TARGETS if cpu_target(mcpu).runs_here]
    return here if ALL or not here else [here[case % len(here)]]


def few_of(found: Sequence[Each], case: int) -> list[Each]:
    """All where there is time, else the first and another one, in turn from case to case."""
    if ALL or len(found) <= _FEW:
        return list(found)
    return [found[0], found[1 + case % (len(found) - 1)]]
