"""Values that are computed where a concatenation needs them, so that it copies nothing.

A part of a concatenation whose elements lie one after the other in the whole, as a layer's cache does in the
stack of all layers, needs no memory of its own: the step that computes it writes into the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dietcode.graph.extent import ONE
from dietcode.graph.tensor_type import TensorType
from dietcode.models.lifetimes import writes_of


def place_parts(
    steps: Sequence[dict[str, Any]],
    root: Mapping[str, str],
    is_contiguous: Mapping[str, bool],
    types: Mapping[str, TensorType],
    taken: Collection[str],
) -> dict[str, str]:
    """Mark the concatenations that copy nothing, and return the whole that each of their parts lies in.

    Parameters
    ----------
    steps : sequence of dict
        Those of a model, not within others; each that is marked gets the names of its parts, ``placed``.
    root : mapping of str to str
        The value whose memory each value lies in.
    is_contiguous : mapping of str to bool
        Of each value.
    types : mapping of str to TensorType
    taken : collection of str
        Values that need memory of their own: outputs, and what has a dimension that a step sets.
    """
    free = {name for step in steps if _computes(step) for name in writes_of(step)} - set(taken)
    whole: dict[str, str] = {}
    for step in steps:
        if step.get("host") != "concat":
            continue
        (result,) = step["results"]
        axis = step["attributes"]["axis"]
        operands = [one.get("value") if isinstance(one, Mapping) else None for one in step["operands"]]
        parts = [root.get(str(one), "") for one in operands]
        fits = all(
            one is not None and is_contiguous[one] and types[one].num_elements == types[part].num_elements
            if part in free
            else False
            for one, part in zip(operands, parts, strict=True)
        )
        outer = types[result].shape[: axis % types[result].rank]
        if not fits or len(set(parts)) < len(parts) or any(extent != ONE for extent in outer):
            continue
        step["placed"] = parts
        whole.update(dict.fromkeys(parts, result))
        free -= {*parts, result}
    return whole


def _computes(step: Mapping[str, Any]) -> bool:
    """Whether a step writes its results itself, rather than steps within it, or another one before."""
    return "kernel" in step or ("host" in step and not step.get("view"))
