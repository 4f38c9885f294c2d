"""One call of a tuned library in a model: the spec of its kernels, and which values it reads and writes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from dietcode.graph.extent import Extent, Ranges

_ALL_POINTS = 12  # up to so many values of a variable, each is an instance
_POINTS_OF_RANGE = 14
_ROWS_OF_TABLE = 1024


@dataclass(frozen=True)
class Argument:
    """A value as a library takes or gives it: its elements in another shape, never copied.

    Attributes
    ----------
    value : str
    shape : tuple of Extent
    """

    value: str
    shape: tuple[Extent, ...]


@dataclass
class KernelCall:
    """A call of a library.

    Attributes
    ----------
    op, tensors : dict
        As a spec has them.
    dims : dict of str to Extent
        Extent of each index.
    arguments : dict of str to Argument
        By the name of the spec's tensor.
    results : list of Argument
        In the order of the spec's outputs.
    num_flops : Extent
        Of one call, to weigh it among others.
    wrapping : set of str
        The tensors of positions, of which those below 0 count from the end.
    """

    op: dict[str, Any]
    tensors: dict[str, dict[str, Any]]
    dims: dict[str, Extent]
    arguments: dict[str, Argument]
    results: list[Argument]
    num_flops: Extent = field(default_factory=Extent)
    wrapping: AbstractSet[str] = frozenset()

    def variables(self) -> dict[str, Extent]:
        """Return the extent of each shape variable: one for each dynamic extent, by its first index.

        Where none is dynamic it is that of the first index, whose range is one value.
        """
        names: dict[Extent, str] = {}
        for index, extent in self.dims.items():
            if not extent.is_constant and extent not in names:
                names[extent] = f"N{index}"
        if not names:
            index = next(iter(self.dims))
            return {f"N{index}": self.dims[index]}
        return {name: extent for extent, name in names.items()}

    def sums_nothing(self, ranges: Ranges) -> str:
        """Return whether the call sums over an axis that no result has, and that may have no element.

        Returns
        -------
        str
            ``"product"`` where one element of zeros gives the same, in attention too; ``"sum"``; or ``""``.
        """
        letters = {
            letter
            for letter, extent in self.dims.items()
            if extent.bounds(ranges)[0] < 1 and any(extent not in one.shape for one in self.results)
        }
        nodes = [] if "block" not in self.op else self.op["block"]["graph"].values()
        if any(node.get("axis") in letters and {"sum", "mean"} & node.keys() for node in nodes):
            return "sum"
        has_product = "einsum" in self.op or any("einsum" in node for node in nodes)
        return "product" if letters and has_product else ""

    def spec(
        self,
        ranges: Ranges,
        single: AbstractSet[Extent] = frozenset(),
        weights: Mapping[str, Mapping[int, float]] | None = None,
    ) -> dict[str, Any]:
        """Return the spec without name, target and budget; equal ones are tuned once.

        Parameters
        ----------
        ranges : mapping of str to (int, int)
            Of the model's dimensions.
        single : set of Extent
            Of tables that rows are gathered from, which hardly matter: each is tuned for at one value.
        weights : mapping of str to mapping, optional
            What the values of a dimension count; those of others are even in the logarithm.
        """

        def variable(extent: Extent) -> dict[str, Any]:
            low, high = extent.bounds(ranges)
            if extent in single:
                return single_variable(low, high)
            (name,) = extent.variables if len(extent.variables) == 1 else ("",)
            own = (weights or {}).get(name)
            if own is None:
                return shape_variable(low, high)
            points = {extent.evaluate({name: value}): weight for value, weight in own.items()}
            return {"min": max(1, low), "max": high, "weights": points}

        variables = self.variables()
        names = {extent: name for name, extent in variables.items() if not extent.is_constant}
        dims = {i: e.constant if e.is_constant else names[e] for i, e in self.dims.items()}
        if not names:
            (name,) = variables
            dims[name.removeprefix("N")] = name
        return {
            "op": self.op,
            "tensors": self.tensors,
            "shape_vars": {name: variable(extent) for name, extent in variables.items()},
            "dims": dims,
        }

    @property
    def kind(self) -> str:
        """The operator in one word, for names and tables."""
        (word,) = [key for key in self.op if key != "epilogue"]
        if word != "block":
            return word
        operators = [next(iter(node)) for node in self.op["block"]["graph"].values()]
        if operators.count("einsum") > 1 and "softmax" in operators:
            return "attention"
        if "einsum" in operators:
            return "dense"
        return next(
            (one for one in ("softmax", "layernorm", "rmsnorm", "gather") if one in operators), "pointwise"
        )


@dataclass(frozen=True)
class RepeatedCall:
    """A call for each position along the first axis of some arguments, and of all results.

    Attributes
    ----------
    call : KernelCall
        Of one position.
    count : Extent
    reverse : bool
        Whether the last position comes first.
    each : tuple of str
        The arguments that have a position for each call.
    carried : dict of str to int
        The arguments that are a result of the call before, by its number.
    """

    call: KernelCall
    count: Extent
    reverse: bool
    each: tuple[str, ...]
    carried: dict[str, int]


def shape_variable(low: int, high: int) -> dict[str, Any]:
    """Return a shape variable of a spec, with the points that are tuned for: evenly in the logarithm."""
    low = max(1, low)
    if high - low < _ALL_POINTS:
        return {"min": low, "max": high}
    ratio = math.log(high / low)
    points = {round(low * math.exp(ratio * k / (_POINTS_OF_RANGE - 1))) for k in range(_POINTS_OF_RANGE)}
    return {"min": low, "max": high, "weights": dict.fromkeys(sorted(points | {low, high}), 1.0)}


def single_variable(low: int, high: int) -> dict[str, Any]:
    """Return a shape variable of a spec that is tuned for at one value, of a table that fits the caches."""
    return {"min": max(1, low), "max": high, "weights": {max(1, low, min(high, _ROWS_OF_TABLE)): 1.0}}


def digest_of(spec: Mapping[str, Any]) -> str:
    """Return the digest of a spec, which names its library in a bundle."""
    text = json.dumps(spec, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
