"""A point of the search space, of whatever kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

AnyMicroKernel: TypeAlias = Any
"""A micro-kernel of any kind of device: frozen, with `rows`, `columns`, `name`, `order` and `to_json`."""


@dataclass(frozen=True)
class Candidate:
    """A micro-kernel and the seed that brought it into the space."""

    micro_kernel: AnyMicroKernel
    provenance: str
