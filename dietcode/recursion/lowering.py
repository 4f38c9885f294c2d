"""A graph of rows as the steps of ``recursion.json``: calls of kernels, and moves of elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node
from dietcode.graph.tensor_type import TensorType
from dietcode.models.kernel_call import Argument, KernelCall
from dietcode.models.lifetimes import reads_of, writes_of
from dietcode.models.lowering import Lowering
from dietcode.models.units import Unit, Units
from dietcode.recursion.moving import Source, moves_of, row_shape
from dietcode.recursion.stages import units_in_order

TABLES = frozenset({Extent.of("N"), Extent.of("T")})


@dataclass(frozen=True)
class LoweredRows:
    """The steps of one form of a cell, as `dietcode.runtime.recursion` reads them.

    Attributes
    ----------
    load, steps : list of dict
        Host steps on weights alone; calls of kernels and moves.
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
    graph: Graph,
    word: str,
    outputs: Mapping[str, str],
    weights: Mapping[int, float],
    is_copied: bool = False,
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
    is_copied : bool
        Whether rows of tables are copied together before kernels read them.

    Raises
    ------
    ModelError
        No kernel computes a node, or a value is not contiguous where it has to be.
    """
    return _RowLowering(graph, word, outputs, weights, is_copied).lowered()


class _RowLowering(Lowering):
    def __init__(
        self,
        graph: Graph,
        word: str,
        outputs: Mapping[str, str],
        weights: Mapping[int, float],
        is_copied: bool,
    ) -> None:
        before = graph.outputs
        graph, self._in_order = units_in_order(graph, word, is_copied)
        super().__init__(graph, Units.singles(graph))
        renamed = dict(zip(before, graph.outputs, strict=True))
        self._word, self._weights = word, weights
        self._outside = {renamed.get(name, name): outside for name, outside in outputs.items()}

    def _units_in_order(self) -> Iterable[Unit]:
        constants = [Unit([node]) for node in self._graph.nodes if node.result in self._constants]
        return [*constants, *self._in_order]

    def _spec(self, call: KernelCall) -> dict[str, Any]:
        return call.spec(self._graph.ranges, TABLES, {"B": self._weights})

    def _positions(self, value: str, call: KernelCall, name: str, argument: Argument) -> str:
        """Return positions as they are: a structure's are checked when it is made."""
        return value

    def _host(self, node: Node) -> None:
        """Write moves of elements; a reshape is a view."""
        if node.operator == "reshape":
            super()._host(node)
            return
        sources = [self._source(node.result if node.operator == "take" else node.tensors[0])]
        sources += [self._source(one) for one in node.tensors[1:] if node.operator == "concat"]
        self._known(node.result)
        self._steps += moves_of(self._graph, node, sources)

    def _source(self, name: str) -> Source:
        """Return where the rows of a value lie; those of a table that nothing has copied lie there."""
        node = self._graph.producers().get(name)
        shape = self._graph.types[name].shape
        if node is None or node.operator != "take" or name in self._root:
            return Source(name, None, row_shape(shape))
        table, positions = node.tensors
        is_one = self._graph.types[table].shape[0] == ONE  # which every position reads
        return Source(table, None if is_one else positions, row_shape(shape))

    def lowered(self) -> LoweredRows:
        """Return the steps, over names that are the model's own."""
        self._add_steps()
        names = self._names()
        steps = []
        for step in self._steps:
            if step.get("view"):
                continue
            if "move" in step:
                for word in ("move", "rows", "result"):
                    step[word] = None if step[word] is None else names[self._root[step[word]]]
                steps.append(step)
                continue
            if "kernel" not in step:
                copied = step["operands"][0]["value"]
                what = f"{self._word}: {self._types[copied]} is not contiguous where a product reads it"
                raise ModelError(f"cannot be compiled: {what}; compute a slice or transpose by a product")
            for one in (*step["arguments"].values(), *step["results"]):
                one["value"] = names[self._root[one["value"]]]
            steps.append(step)
        load = [_renamed(step, names) for step in _needed(self._load, steps, names)]
        used = {name for step in (*load, *steps) for name in _named(step)}
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


def _named(step: Mapping[str, Any]) -> Iterable[str]:
    if "move" in step:
        return [step[word] for word in ("move", "rows", "result") if step[word] is not None]
    return (*reads_of(step), *writes_of(step))


def _renamed(step: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    operands = [
        {"value": names[one["value"]]} if isinstance(one, Mapping) else one for one in step["operands"]
    ]
    return {**step, "operands": operands, "results": [names[one] for one in step["results"]]}


def _needed(
    load: list[dict[str, Any]], steps: list[dict[str, Any]], names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the steps of the load that others need."""
    needed = {name for step in steps for name in ((step["move"],) if "move" in step else reads_of(step))}
    kept = []
    for step in reversed(load):
        if needed & {names[one] for one in step["results"]}:
            needed.update(names[one] for one in reads_of(step))
            kept.append(step)
    return kept[::-1]
