"""What ran eagerly, counted by the line of the user's code."""

from __future__ import annotations

import os
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_TORCH = find_spec("torch")
_SKIPPED = tuple(
    str(Path(one).parent) + os.sep for one in (_TORCH and _TORCH.origin, Path(__file__).parents[1]) if one
)


class EagerUse(NamedTuple):
    """An operator that PyTorch computes, where no region has it.

    Attributes
    ----------
    file : str
    line : int
    reason, operator : str
    """

    file: str
    line: int
    reason: str
    operator: str


class EagerCounts(Counter[EagerUse]):
    """How often each operator ran eagerly, by the line of the user's code."""

    def note(self, reason: str, operator: str) -> None:
        """Count one for the innermost line that is neither of DietCode's nor of PyTorch's."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
            frame = frame.f_back
        self[EagerUse(frame.f_code.co_filename, frame.f_lineno, reason, operator)] += 1
