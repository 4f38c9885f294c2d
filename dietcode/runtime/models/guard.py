"""The guard before a model: every input checked, every dimension bound, before the first kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dietcode.errors import ShapeError
from dietcode.graph.extent import Atom, Extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.executable import Executable

Shapes = Sequence[tuple[int, ...]]


class ShapeGuard:
    """Binds the dimensions of a model from the shapes of its inputs.

    Parameters
    ----------
    inputs : mapping of str to TensorType
    ranges : mapping of str to (int, int)
        Of the dimensions.

    Attributes
    ----------
    order : list of (str, int, int, Extent)
        Dimensions as they are bound: each with the number of an input, its axis, and the extent there, in
        which no later dimension occurs, and this one linearly.

    Raises
    ------
    ValueError
        A dimension follows from no input's shape, or only from one that several of its values have.
    """

    def __init__(self, inputs: Mapping[str, TensorType], ranges: Mapping[str, tuple[int, int]]) -> None:
        self._inputs, self._ranges = dict(inputs), dict(ranges)
        axes = [
            (number, axis, extent)
            for number, type_ in enumerate(inputs.values())
            for axis, extent in enumerate(type_.shape)
        ]
        self._solvers: list[tuple[str, int, int, Callable[[int, Mapping[str, int]], int | None]]] = []
        self.order: list[tuple[str, int, int, Extent]] = []
        known: set[str] = set()
        waiting = [one for one in axes if not one[2].is_constant]
        while True:
            found = next((one for one in waiting if _unknown(one[2], known) is not None), None)
            if found is None:
                break
            waiting.remove(found)
            number, axis, extent = found
            name = str(_unknown(extent, known))
            self._solvers.append((name, number, axis, _solver(extent, name)))
            self.order.append((name, number, axis, extent))
            known.add(name)
        missing = sorted(set(ranges) - known)
        if missing:
            raise ValueError(f"dimension {missing[0]} follows from no input's shape")

    def bind(self, shapes: Shapes) -> dict[str, int]:
        """Return the value of each dimension.

        Parameters
        ----------
        shapes : sequence of tuple of int
            Of the inputs, in their order.

        Raises
        ------
        ShapeError
            A rank or an extent is not that of the model, two inputs disagree, or a dimension is out of range.
        """
        for (name, type_), shape in zip(self._inputs.items(), shapes, strict=True):
            if len(shape) != type_.rank:
                raise ShapeError(f"{name}: shape {list(shape)}; allowed: {self.described(type_)}")
        binding: dict[str, int] = {}
        for dimension, number, axis, solve in self._solvers:
            value = solve(shapes[number][axis], binding)
            if value is None:
                raise self._error(number, shapes[number], axis)
            low, high = self._ranges[dimension]
            if not low <= value <= high:
                own = f"{list(self._inputs)[number]}: shape {list(shapes[number])}"
                raise ShapeError(f"{own}, whose axis {axis} makes {dimension} {value}; allowed: {low}…{high}")
            binding[dimension] = value
        for number, type_ in enumerate(self._inputs.values()):
            for axis, extent in enumerate(type_.shape):
                if extent.evaluate(binding) != shapes[number][axis]:
                    raise self._error(number, shapes[number], axis, binding)
        return binding

    def _error(
        self, number: int, shape: tuple[int, ...], axis: int, binding: Mapping[str, int] | None = None
    ) -> ShapeError:
        name, type_ = list(self._inputs.items())[number]
        bound = [f"{d} is {v}" for d, v in (binding or {}).items() if d in type_.shape[axis].variables]
        why = f" ({', '.join(bound)} by another axis)" if bound else ""
        return ShapeError(f"{name}: shape {list(shape)}; allowed: {self.described(type_)}{why}")

    def described(self, type_: TensorType) -> str:
        """Return a shape with the ranges of its dimensions."""
        names = sorted({name for extent in type_.shape for name in extent.variables})
        ranges = ", ".join(f"{name} in {self._ranges[name][0]}…{self._ranges[name][1]}" for name in names)
        return f"[{', '.join(map(str, type_.shape))}]" + (f" with {ranges}" if ranges else "")


def _unknown(extent: Extent, known: set[str]) -> str | None:
    """Return the dimension that an extent tells where others are known: alone, and in no quotient or power.

    ``L//2 + 1`` is the same for two L, so that another axis has to tell it.
    """
    missing = extent.variables - known
    if len(missing) != 1:
        return None
    (name,) = missing
    for _, monomial in extent.terms:
        for factor, power in monomial:
            if factor == name and power > 1:
                return None
            if isinstance(factor, Atom) and name in (factor.first.variables | factor.second.variables):
                return None
    return name


def _solver(extent: Extent, name: str) -> Callable[[int, Mapping[str, int]], int | None]:
    """Return a function of an extent's value and the other dimensions, which gives the dimension or None."""
    if extent == Extent.of(name):
        return lambda value, known: value

    def solve(value: int, known: Mapping[str, int]) -> int | None:
        at_zero = extent.evaluate({**known, name: 0})
        slope = extent.evaluate({**known, name: 1}) - at_zero
        if slope == 0 or (value - at_zero) % slope:
            return None
        return (value - at_zero) // slope  # checked by evaluating the extent again

    return solve


def guard_of(executable: Executable) -> ShapeGuard:
    """Return the guard of a model's inputs.

    Raises
    ------
    ValueError
        A dimension that a value's shape follows from is told by no input.
    """
    used = executable.used_dimensions
    return ShapeGuard(executable.inputs, {n: bounds for n, bounds in executable.ranges.items() if n in used})
