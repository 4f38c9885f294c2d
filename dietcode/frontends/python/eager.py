"""Which lines of a program PyTorch computes, where samples are recorded: needs PyTorch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch.overrides import TorchFunctionMode

from dietcode.runtime.recorded.counts import EagerCounts
from dietcode.workload.text import one_line

_MAX_REASON = 200
_PACKAGE = str(Path(__file__).parents[2]) + os.sep
# These read a value or a property: nothing is computed.
_READS = frozenset(
    {"__get__", "__set__", "size", "dim", "numel", "__len__", "item", "tolist", "data_ptr"}
    | {"is_neg", "untyped_storage", "storage_offset", "stride", "is_contiguous", "is_floating_point"}
    | {"__bool__", "__float__", "__int__", "__index__"}
)


class LeftOut(NamedTuple):
    """Tensor code that is no block.

    Attributes
    ----------
    file : str
    first, last : int
        Lines.
    reason : str
    """

    file: str
    first: int
    last: int
    reason: str


class EagerUses(TorchFunctionMode):  # type: ignore[misc]
    """Counts what PyTorch computes while it is entered, but for blocks.

    Attributes
    ----------
    counts : EagerCounts
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts = EagerCounts()
        self._within = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count an operator, and compute it."""
        name = getattr(func, "__name__", str(func))
        is_own = sys._getframe(1).f_code.co_filename.startswith(_PACKAGE)
        if not (self._within or is_own or name in _READS):
            self.counts.note("", name)
        return func(*args, **(kwargs or {}))

    def uncounted(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return what computes blocks, without counting their operators."""

        def call(*given: Any) -> None:
            self._within += 1
            try:
                compute(*given)
            finally:
                self._within -= 1

        return call


def eager_places(
    counts: EagerCounts, left_out: Sequence[LeftOut], files: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Return each line of some files that ran eagerly, as ``trees.py:12``, and why.

    Parameters
    ----------
    counts : EagerCounts
    left_out : sequence of LeftOut
        Of two that have a line, the later one is part of the earlier one.
    files : collection of str
    """
    operators: dict[tuple[str, int], list[str]] = {}
    for use in counts:
        if use.file in files:
            operators.setdefault((use.file, use.line), []).append(use.operator)
    found = []
    for (file, line), names in sorted(operators.items()):
        reason = next(
            (one.reason for one in reversed(left_out) if one.file == file and one.first <= line <= one.last),
            "not straight-line code on tensors of one shape, or changes a tensor in place",
        )
        text = f"{', '.join(sorted(set(names)))}: {reason}"
        found.append((f"{Path(file).name}:{line}", one_line(text, _MAX_REASON)))
    return tuple(found)
