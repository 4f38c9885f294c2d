"""Calls of libraries with several outputs: new tensors, or those that the caller gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dietcode.errors import TensorError
from dietcode.runtime.lean_call import NotLeanError
from dietcode.runtime.tensors import new_output
from dietcode.workload.quotient import Dim

_MAX_CACHED_SHAPES = 4096
_Shapes = tuple[tuple[int, ...], ...]


def not_lean(*arguments: Any) -> Any:
    """Send every call the long way.

    Raises
    ------
    NotLeanError
        Always.
    """
    raise NotLeanError


class SeveralOutputs:
    """The outputs of one library.

    Parameters
    ----------
    outputs : sequence of mapping
        Name, dims and dtype of each, as a manifest has them.
    variables : tuple of str
        Shape variables, in the order of their values.
    dims : mapping of str to Dim
        Extent of each index.
    check : callable
        ``(out, shape, others) -> tensor``: one output of the caller as the code takes it; refuses what is
        wrong, and what overlaps one of the others.
    """

    def __init__(
        self,
        outputs: Sequence[Mapping[str, Any]],
        variables: tuple[str, ...],
        dims: Mapping[str, Dim],
        check: Callable[[Any, tuple[int, ...], list[Any]], Any],
    ) -> None:
        self._outputs, self._variables, self._dims, self._check = outputs, variables, dims, check
        self._shapes: dict[tuple[int, ...], _Shapes] = {}

    def prepare(
        self, out: Any, values: tuple[int, ...], tensors: Sequence[Any], arguments: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], list[Any]]:
        """Return the outputs, new ones or those of `out`, and the same as the code takes them.

        Parameters
        ----------
        out : tuple of tensor or None
            As the caller gives them.
        values : tuple of int
            Of the shape variables.
        tensors : sequence
            The inputs, as the code takes them.
        arguments : mapping of str to tensor
            The inputs, as the caller gives them.

        Raises
        ------
        TensorError, ShapeError
            `out` is not what the library gives.
        """
        shapes = self._shapes.get(values) or self._find_shapes(values)
        if out is None:
            kinds = (facts["dtype"] for facts in self._outputs)
            new = [new_output(s, k, arguments.values()) for s, k in zip(shapes, kinds, strict=True)]
            return tuple(new), new
        if not isinstance(out, tuple | list) or len(out) != len(shapes):
            given = f"{len(out)} tensors" if isinstance(out, tuple | list) else type(out).__name__
            names = ", ".join(facts["name"] for facts in self._outputs)
            raise TensorError(f"out: {given}; allowed: a tuple of {names}")
        taken = list(tensors)
        for given, shape in zip(out, shapes, strict=True):
            taken.append(self._check(given, shape, taken))
        return tuple(out), taken[len(tensors) :]

    def _find_shapes(self, values: tuple[int, ...]) -> _Shapes:
        """Return the shapes, kept for values that come again."""
        named = dict(zip(self._variables, values, strict=True))
        shapes = tuple(
            tuple(int(self._dims[index].evaluate(named)) for index in facts["dims"])
            for facts in self._outputs
        )
        if len(self._shapes) < _MAX_CACHED_SHAPES:
            self._shapes[values] = shapes
        return shapes
