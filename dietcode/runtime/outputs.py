"""The outputs of a call the long way: new tensors, or those that the caller gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dietcode.errors import TensorError
from dietcode.runtime.tensors import new_output

Check = Callable[[Any, Mapping[str, Any], tuple[int, ...], list[Any]], Any]
"""``(out, facts, shape, others) -> tensor``: an output of the caller as the code takes it.

Refuses what is wrong, and what overlaps one of the others.
"""


def settle(
    outputs: Sequence[Mapping[str, Any]],
    out: Any,
    shapes: Sequence[tuple[int, ...]],
    tensors: tuple[Sequence[Any], Mapping[str, Any]],
    check: Check,
) -> tuple[Any, list[Any]]:
    """Return the result of a call, new or `out` itself, and its tensors as the code takes them.

    Parameters
    ----------
    outputs : sequence of mapping
        Name and dtype of each, as a manifest has them.
    out : tensor, tuple of tensor or None
        As the caller gives it; a tuple where there are several.
    shapes : sequence of tuple of int
        Of each output.
    tensors : (sequence of tensor, mapping of str to tensor)
        The inputs as the code takes them, and as the caller gives them.
    check : callable
        As `Check` says.

    Raises
    ------
    TensorError, ShapeError
        `out` is not what the library gives.
    """
    given, is_one = [out], len(outputs) == 1
    if out is None:
        facts = zip(shapes, outputs, strict=True)
        made = [new_output(shape, own["dtype"], tensors[1].values()) for shape, own in facts]
        return made[0] if is_one else tuple(made), made
    if not is_one:
        given = _listed(out, outputs)
    taken = list(tensors[0])
    for one, own, shape in zip(given, outputs, shapes, strict=True):
        taken.append(check(one, own, shape, taken))
    return out if is_one else tuple(given), taken[len(tensors[0]) :]


def _listed(out: Any, outputs: Sequence[Mapping[str, Any]]) -> list[Any]:
    if isinstance(out, tuple | list) and len(out) == len(outputs):
        return list(out)
    given = f"{len(out)} tensors" if isinstance(out, tuple | list) else type(out).__name__
    names = ", ".join(facts["name"] for facts in outputs)
    raise TensorError(f"out: {given}; allowed: a tuple of {names}")
