"""Keeping the file of a library below ``objective.max_bytes``: choose, build, compare, and choose again.

Before a library is built only the machine code of its micro-kernels is known. What else is in the file
(the rule, the host part, an architecture's copy of each kernel, PTX) is learned from files that were built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dietcode.errors import TuningError
from dietcode.search_space.problem import IntArray

_MAX_BUILDS = 6
Made = TypeVar("Made")


@dataclass(frozen=True)
class Built:
    """A file, in bytes.

    Attributes
    ----------
    kernel_bytes : int
        Machine code of the chosen micro-kernels, as records have it.
    file_bytes : int
        All of the file.
    """

    kernel_bytes: int
    file_bytes: int


@dataclass(frozen=True)
class FileSize:
    """What a file takes: ``fixed + scale · kernel_bytes``.

    Attributes
    ----------
    fixed : int
        Bytes that any library has.
    scale : float
        Bytes in the file for each byte of machine code, at least 1: how many architectures it is there for.
    """

    fixed: int
    scale: float = 1.0

    def sizes(self, kernel_bytes: IntArray) -> IntArray:
        """Return what each micro-kernel adds to the file, int64 as `kernel_bytes`."""
        added: IntArray = np.ceil(self.scale * kernel_bytes).astype(np.int64)
        return added

    def learned(self, built: Sequence[Built]) -> FileSize:
        """Return the line through the two smallest files; through a single one, with `fixed` as it is."""
        first, *more = sorted(built, key=lambda one: one.kernel_bytes)
        scale = (first.file_bytes - self.fixed) / first.kernel_bytes
        if more and more[0].kernel_bytes > first.kernel_bytes:
            scale = (more[0].file_bytes - first.file_bytes) / (more[0].kernel_bytes - first.kernel_bytes)
        scale = max(1.0, scale)
        return FileSize(max(self.fixed, round(first.file_bytes - scale * first.kernel_bytes)), scale)


def build_within(
    cap: int | None, expected: FileSize, build: Callable[[FileSize], tuple[Made, Built]]
) -> Made:
    """Build a library whose file is not larger than asked.

    Parameters
    ----------
    cap : int or None
        ``objective.max_bytes``; None: as large as it gets.
    expected : FileSize
        Size that the first choice goes by, no larger than files are.
    build : callable
        Chooses by a size, and builds.

    Raises
    ------
    TuningError
        No library that was built is small enough, or `build` finds that none can be.
    """
    known: list[Built] = []
    while len(known) < _MAX_BUILDS:
        made, built = build(expected.learned(known) if known else expected)
        if cap is None or built.file_bytes <= cap:
            return made
        known.append(built)
    least = min(one.file_bytes for one in known)
    raise TuningError(
        f"max_bytes is {cap}, and the smallest library of {len(known)} that were built has {least} bytes; "
        "allow more"
    )
