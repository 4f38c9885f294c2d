"""A graph of rows as the steps of ``recursion.json``: calls of kernels alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.tensor_type import TensorType
from dietcode.models.kernel_call import Argument, KernelCall
from dietcode.models.lifetimes import reads_of, writes_of
from dietcode.models.lowering import Lowering
from dietcode.models.units import Unit, Units
from dietcode.recursion.stages import units_in_order

TABLES = frozenset({Extent.of("N"), Extent.of("T")})


@dataclass(frozen=True)
class LoweredRows:
    """The steps of one form of a cell, as `dietcode.runtime.recursion` reads them.

    Attributes
    ----------
    load, steps : list of dict
        Host steps on weights alone; calls of kernels.
    types : dict of str to TensorType
        Of what steps write or read.
    weights : set of str
        The weights that they read.
    specs : dict of str to dict
        The spec of each library, without name, target and budget, by its digest.
    calls : dict of str to list of KernelCall
        Those of each library.
    """

    load: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    types: dict[str, TensorType]
    weights: set[str]
    specs: dict[str, dict[str, Any]]
    calls: dict[str, list[KernelCall]]


def lower_rows(
    graph: Graph, word: str, outputs: Mapping[str, str], weights: Mapping[int, float]
) -> LoweredRows:
    """Return the steps of a graph of rows.

    Parameters
    ----------
    graph : Graph
    word : str
        What it is of, for messages and names.
    outputs : mapping of str to str
        The names of its outputs outside.
    weights : mapping of int to float
        What each number of rows counts when its kernels are tuned.

    Raises
    ------
    ModelError
        No kernel computes a node, or a value is not contiguous where it has to be.
    """
    return _RowLowering(graph, word, outputs, weights).lowered()


class _RowLowering(Lowering):
    def __init__(
        self, graph: Graph, word: str, outputs: Mapping[str, str], weights: Mapping[int, float]
    ) -> None:
        super().__init__(graph, Units.singles(graph))
        self._word, self._outside, self._weights = word, outputs, weights
        self._in_order = units_in_order(graph, word)

    def _units_in_order(self) -> Iterable[Unit]:
        constants = [Unit([node]) for node in self._graph.nodes if node.result in self._constants]
        return [*constants, *self._in_order]

    def _spec(self, call: KernelCall) -> dict[str, Any]:
        return call.spec(self._graph.ranges, TABLES, {"B": self._weights})

    def _positions(self, value: str, call: KernelCall, name: str, argument: Argument) -> str:
        """Return positions as they are: a structure's are checked when it is made."""
        return value

    def lowered(self) -> LoweredRows:
        """Return the steps, over names that are the model's own."""
        self._add_steps()
        names = self._names()
        steps = []
        for step in self._steps:
            if step.get("view"):
                continue
            if "kernel" not in step:
                copied = step["operands"][0]["value"]
                what = f"{self._word}: {self._types[copied]} is not contiguous where a product reads it"
                raise ModelError(f"cannot be compiled: {what}; compute a slice or transpose by a product")
            for one in (*step["arguments"].values(), *step["results"]):
                one["value"] = names[self._root[one["value"]]]
            steps.append(step)
        load = [_renamed(step, names) for step in _needed(self._load, steps, names)]
        used = {name for step in (*load, *steps) for name in (*reads_of(step), *writes_of(step))}
        types = {names[name]: type_ for name, type_ in self._types.items() if names.get(name) in used}
        types = {name: type_ for name, type_ in types.items() if name not in self._graph.weights}
        weights = used & set(self._graph.weights)
        return LoweredRows(load, steps, types, weights, self._lowered.specs, self._lowered.calls)

    def _names(self) -> dict[str, str]:
        """Return the name outside of every value: inputs and weights keep theirs."""
        kept = {*self._graph.inputs, *self._graph.weights}
        names = {name: name if name in kept else f"{self._word}/{name}" for name in self._types}
        for name, outside in self._outside.items():
            names[self._root[name]] = outside
        return names


def _renamed(step: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    operands = [
        {"value": names[one["value"]]} if isinstance(one, Mapping) else one for one in step["operands"]
    ]
    return {**step, "operands": operands, "results": [names[one] for one in step["results"]]}


def _needed(
    load: list[dict[str, Any]], steps: list[dict[str, Any]], names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the steps of the load that others need."""
    needed = {name for step in steps for name in reads_of(step)}
    kept = []
    for step in reversed(load):
        if needed & {names[one] for one in step["results"]}:
            needed.update(names[one] for one in reads_of(step))
            kept.append(step)
    return kept[::-1]
