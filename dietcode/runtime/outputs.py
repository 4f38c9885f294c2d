"""The outputs of a call the long way: new tensors, those that are given, or tables among the inputs."""

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
    tensors: tuple[Mapping[str, Any], Mapping[str, Any]],
    check: Check,
) -> tuple[Any, list[Any]]:
    """Return the result of a call, new or `out` itself, and its tensors as the code takes them.

    Parameters
    ----------
    outputs : sequence of mapping
        Name and dtype of each, as a manifest has them, and the table that it goes to, if any.
    out : tensor, tuple of tensor or None
        As the caller gives it; a tuple where there are several.
    shapes : sequence of tuple of int
        Of each output.
    tensors : (mapping of str to tensor, mapping of str to tensor)
        The inputs as the code takes them, in its order, and as the caller gives them.
    check : callable
        As `Check` says.

    Raises
    ------
    TensorError, ShapeError
        `out` is not what the library gives.
    """
    accepted, arguments = tensors
    is_one, names = len(outputs) == 1, list(accepted)
    if out is None:
        given: list[Any] = [None] * len(outputs)
    else:
        given = [out] if is_one else _listed(out, outputs)
    results, taken = [], list(accepted.values())
    for one, facts, shape in zip(given, outputs, shapes, strict=True):
        table = facts.get("into")
        if table is not None and out is not None and one is not arguments[table]:
            raise TensorError(f"out: another tensor for {facts['name']}; allowed: {table}, which is written")
        if table is None and out is None:
            results.append(new_output(shape, facts["dtype"], arguments.values()))
            taken.append(results[-1])
            continue
        result = arguments[table] if table is not None else one
        others = [tensor for number, tensor in enumerate(taken) if names[number : number + 1] != [table]]
        results.append(result)
        taken.append(check(result, facts, shape, others))
    if is_one:
        return results[0], taken[len(accepted) :]
    return tuple(results), taken[len(accepted) :]


def _listed(out: Any, outputs: Sequence[Mapping[str, Any]]) -> list[Any]:
    if isinstance(out, tuple | list) and len(out) == len(outputs):
        return list(out)
    given = f"{len(out)} tensors" if isinstance(out, tuple | list) else type(out).__name__
    names = ", ".join(facts["name"] for facts in outputs)
    raise TensorError(f"out: {given}; allowed: a tuple of {names}")
