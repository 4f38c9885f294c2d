"""What a host step computes: the operators of graphs, and two that a compilation adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dietcode.errors import ShapeError
from dietcode.runtime.host.layout import first_outside
from dietcode.runtime.host_operators import HOST, HOST_INTO, Array, HostWriter
from dietcode.runtime.models.copies import Copy, concatenate
from dietcode.runtime.models.executable import Executable, HostStep, evaluated

Action: TypeAlias = Callable[[list[Any]], Any]


def _positions(operands: Sequence[Any], attributes: Mapping[str, Any], out: Array) -> None:
    """Write positions as kernels take them: int32, counted from the front, all within a table of `rows`.

    Raises
    ------
    ShapeError
        One lies outside: a kernel would read the first or the last row instead.
    """
    given, rows, wraps = operands[0], attributes["rows"], attributes.get("wraps", True)
    wrong = first_outside(given, rows, wraps)
    if wrong is not None:
        allowed = f"{-rows if wraps else 0}…{rows - 1}"
        raise ShapeError(f"a position is {wrong}; allowed: {allowed}, rows of the table that is read")
    np.copyto(out, given, casting="unsafe")
    if wraps:
        np.add(out, rows, out=out, where=out < 0)


_READERS = frozenset(  # of elements at positions, which a call gives
    {"positions", "take", "take_along", "take_points", "scatter_along", "scatter_points"}
)
_WRITERS: dict[str, HostWriter] = {**HOST_INTO, "positions": _positions}


def computed(operator: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Return the results of an operator as new arrays, for what is computed once."""
    if operator == "copy":
        return (np.array(operands[0], order="C", copy=True),)
    if operator == "positions":
        out = np.empty(operands[0].shape, np.int32)
        _positions(operands, attributes, out)
        return (out,)
    return HOST[operator](operands, attributes)


def host_action(
    operator: str, attributes: int, operands: Sequence[int], targets: Sequence[int], copy: Copy
) -> Action:
    """Return what computes an operator into memory that is there.

    Parameters
    ----------
    operator : str
    attributes : int
        The slot of a dict, with extents as numbers.
    operands, targets : sequence of int
        Slots of the operands, and of the arrays of the results.
    copy : callable
        What copies a value.
    """
    if operator in ("copy", "concat"):
        return _copying(operator, attributes, operands, targets[0], copy)
    write = _WRITERS.get(operator)
    if write is not None:
        into, (target,) = write, targets

        def act_into(slots: list[Any]) -> None:
            into([slots[one] for one in operands], slots[attributes], slots[target])

        return act_into
    compute = HOST[operator]

    def act(slots: list[Any]) -> None:
        results = compute([slots[one] for one in operands], slots[attributes])
        for target, result in zip(targets, results, strict=True):
            np.copyto(slots[target], result)

    return act


def with_reader(action: Action, executable: Executable, step: HostStep) -> Action:
    """Return an action whose errors of positions begin with what is read of inputs and weights, and where."""
    named = [one for one in step.operands if one in executable.inputs or one in executable.weights]
    words = [", ".join(named)] * bool(named) + [step.source] * bool(step.source)
    if step.operator not in _READERS or not words:
        return action
    where = f"{words[0]} ({words[1]})" if words[1:] else words[0]

    def act(slots: list[Any]) -> None:
        try:
            action(slots)
        except ShapeError as error:
            raise ShapeError(f"{where}: {error}") from None

    return act


def _copying(operator: str, attributes: int, operands: Sequence[int], target: int, copy: Copy) -> Action:
    if operator == "copy":
        (source,) = operands
        return lambda slots: copy(slots[target], slots[source])

    def concat(slots: list[Any]) -> None:
        parts = [slots[one] for one in operands]
        concatenate(parts, slots[attributes]["axis"], slots[target], copy)

    return concat


def evaluated_attributes(step: HostStep, binding: Mapping[str, int]) -> dict[str, Any]:
    """Return the attributes of a step with extents as numbers."""
    return {key: evaluated(value, binding) for key, value in step.attributes.items()}
