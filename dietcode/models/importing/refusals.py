"""What importers refuse, in words that they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dietcode.errors import ModelError
from dietcode.workload.text import clip

_MOST_LISTED = 20


def listed(problems: Sequence[str]) -> str:
    """Return one line that names all of them, or the first ones."""
    shown = "; ".join(problems[:_MOST_LISTED])
    more = f"; and {len(problems) - _MOST_LISTED} more" if len(problems) > _MOST_LISTED else ""
    return f"cannot be compiled: {shown}{more}"


def unknown_range(key: str, allowed: Iterable[str]) -> ModelError:
    """Return the refusal of a range whose dimension the model has not."""
    names = ", ".join(dict.fromkeys(allowed)) or "none: all sizes are fixed"
    return ModelError(f"--range {clip(key)}: no dimension of the model; allowed: {names}")
