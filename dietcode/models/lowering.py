"""From units to an executable: a list of steps as plain data, which the runtime reads.

A step calls a kernel, computes an operator on the host, or is a view of a value. Weights, and what follows
from them alone, are values of the load. See `dietcode.runtime.models.executable` for the format.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dietcode.graph.attributes import plain
from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node, node_to_json
from dietcode.graph.tensor_type import TensorType
from dietcode.models.grouping import constants_of, is_valid, make_units
from dietcode.models.kernel_call import Argument, KernelCall, RepeatedCall, digest_of
from dietcode.models.lifetimes import Lifetimes, all_steps, loop_values, reads_of, writes_of
from dietcode.models.memory import Lifetime, plan_storages
from dietcode.models.nested import opened, renamed, written_outputs
from dietcode.models.placing import place_parts
from dietcode.models.rewriting import rewrite
from dietcode.models.transposition_calls import transposition_call
from dietcode.models.units import Unit, Units, needed_units
from dietcode.runtime.models.executable import ALIGNMENT, FORMAT, VIEW_OPERATORS


@dataclass
class Lowered:
    """An executable, and what has to be tuned for it.

    Attributes
    ----------
    description : dict
        Plain data.
    specs : dict of str to dict
        The spec of each library, without name, target and budget, by its digest.
    calls : dict of str to list of KernelCall
        Those of each library.
    """

    description: dict[str, Any]
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: dict[str, list[KernelCall]] = field(default_factory=dict)


def lower(graph: Graph, units: Units) -> Lowered:
    """Return the executable of a partitioned graph."""
    return Lowering(graph, units).run()


class Lowering:
    """A graph that becomes steps.

    Parameters
    ----------
    graph : Graph
    units : Units
        Of the graph.
    around : Lowering, optional
        Of the graph that this one is within; values have other names there.
    """

    def __init__(self, graph: Graph, units: Units, around: Lowering | None = None) -> None:
        self._graph, self._units = graph, units
        self._constants, self._producers = constants_of(graph), graph.producers()
        self._steps: list[dict[str, Any]] = []
        if around is None:
            self._load: list[dict[str, Any]] = []
            self._root: dict[str, str] = {}
            self._is_contiguous: dict[str, bool] = {}
            self._types: dict[str, TensorType] = {}
            self._lowered = Lowered({})
            self._copies: dict[str, str] = {}
        else:
            self._constants |= around._constants
            self._load, self._lowered, self._types = around._load, around._lowered, around._types
            self._root, self._is_contiguous = around._root, around._is_contiguous
            self._copies = dict(around._copies)  # what is copied within is not there around
        self._types.update(graph.types)
        for name in (*graph.inputs, *graph.weights):
            self._known(name)

    def _known(self, name: str) -> None:
        """Note a value that has memory of its own."""
        self._root.setdefault(name, name)
        self._is_contiguous.setdefault(name, True)

    def _units_in_order(self) -> Iterable[Unit]:
        """Return the units that outputs need, each after what it reads."""
        return needed_units(self._graph, self._units)

    def _add_steps(self) -> None:
        for unit in self._units_in_order():
            if unit.call is not None:
                self._kernel(unit.call, unit.nodes, unit.repeated)
            elif unit.nodes[0].result in self._constants:
                self._constant(unit.nodes[0])
            elif unit.nodes[0].operator == "cond":
                self._branch(unit.nodes[0])
            elif unit.nodes[0].graphs:
                self._loop(unit.nodes[0])
            else:
                self._host(unit.nodes[0])

    def run(self) -> Lowered:
        self._add_steps()
        outputs = [self._contiguous(name) for name in self._graph.outputs]
        self._place(outputs)
        storages = self._plan(outputs)
        used = self._used(outputs)
        self._lowered.description = {
            "format": FORMAT,
            "name": self._graph.name,
            "dimensions": {n: {"min": low, "max": high} for n, (low, high) in self._graph.ranges.items()},
            **(
                {"sizes": {n: plain(most) for n, most in self._graph.sizes.items()}}
                if self._graph.sizes
                else {}
            ),
            "inputs": self._typed(self._graph.inputs),
            "weights": self._typed(n for n in self._graph.weights if n in used),
            "values": self._typed(n for n in self._types if n in used and n not in self._graph.inputs),
            "load": self._load,
            "steps": self._steps,
            "outputs": outputs,
            "storages": storages,
            "signature": self._graph.signature,
        }
        return self._lowered

    def _typed(self, names: Iterable[str]) -> dict[str, Any]:
        types = {name: self._types[name] for name in names}
        return {name: {"dtype": t.dtype, "shape": plain(t.shape)} for name, t in types.items()}

    def _spec(self, call: KernelCall) -> dict[str, Any]:
        return call.spec(self._graph.ranges)

    def _kernel(self, call: KernelCall, nodes: list[Node], repeated: RepeatedCall | None) -> None:
        spec = self._spec(call)
        digest = digest_of(spec)
        self._lowered.specs[digest] = spec
        self._lowered.calls.setdefault(digest, []).append(call)
        arguments = {}
        for name, argument in call.arguments.items():
            value = self._contiguous(argument.value)
            value = self._positions(value, call, name, argument)
            arguments[name] = {"value": value, "shape": plain(argument.shape)}
        for result in call.results:
            self._root[result.value], self._is_contiguous[result.value] = result.value, True
        step: dict[str, Any] = {
            "kernel": digest,
            "arguments": arguments,
            "results": [{"value": r.value, "shape": plain(r.shape)} for r in call.results],
            "variables": {name: plain(extent) for name, extent in call.variables().items()},
            "sources": list(dict.fromkeys(node.source for node in nodes if node.source)),
        }
        if call.sums_nothing(self._graph.ranges):
            step["is_product"] = True
        self._steps.append(step)
        if repeated is not None:
            step["repeat"] = {
                "count": plain(repeated.count),
                "reverse": repeated.reverse,
                "each": list(repeated.each),
                "carried": repeated.carried,
            }
            self._last_states(call, nodes[0], repeated)

    def _last_states(self, call: KernelCall, node: Node, repeated: RepeatedCall) -> None:
        """Give the states after the last step their names; those of all steps are kept."""
        type_ = self._types[node.result]
        last = Extent() if repeated.reverse else repeated.count - 1
        for result, name in zip(call.results, node.results[1:], strict=True):
            self._types.setdefault(result.value, type_)
            one = f"{name}:one"
            self._types[one] = TensorType(type_.dtype, (ONE, *type_.shape[1:]))
            bounds = {"axis": 0, "start": plain(last), "stop": plain(last + 1), "step": 1}
            for operator, source, target, attributes in (
                ("slice", result.value, one, bounds),
                ("reshape", one, name, {"shape": plain(type_.shape[1:])}),
            ):
                step = {"host": operator, "operands": [{"value": source}], "attributes": attributes}
                self._steps.append({**step, "results": [target], "view": True})
                self._root[target], self._is_contiguous[target] = self._root[source], True

    def _positions(self, value: str, call: KernelCall, name: str, argument: Argument) -> str:
        """Return positions as kernels take them: int32, within the table, none counted from the end."""
        if call.tensors.get(name, {}).get("dtype") != "int32":
            return value
        (rows,) = {
            call.dims[call.tensors[node["gather"][0]]["dims"][0]]
            for node in call.op["block"]["graph"].values()
            if node.get("gather", (None, None))[1] == name
        }
        attributes = {"rows": rows, "wraps": name in call.wrapping}
        return self._made("positions", [value], attributes, TensorType("int32", self._types[value].shape))

    def _made(
        self,
        operator: str,
        operands: list[str],
        attributes: dict[str, Any],
        type_: TensorType,
        again: bool = False,
    ) -> str:
        """Return what an operator of the lowering makes of values.

        Parameters
        ----------
        operator : str
        operands : list of str
        attributes : dict
        type_ : TensorType
            Of the result.
        again : bool
            Whether each call of the model, or each time in a loop, needs a new one.
        """
        name = f"{operands[0]}:{operator}"
        key = f"{name}:{sorted((k, str(v)) for k, v in attributes.items())}"
        if key in self._copies and not again:
            return self._copies[key]
        while name in self._types:
            name += "'"
        self._types[name], self._root[name], self._is_contiguous[name] = type_, name, True
        if not again:
            self._copies[key] = name
        node = {
            "host": operator,
            "operands": [{"value": one} for one in operands],
            "attributes": {key: plain(value) for key, value in attributes.items()},
            "results": [name],
        }
        if set(operands) <= self._constants and not again:
            self._load.append(node)
            self._constants.add(name)
        else:
            self._steps.append(node)
        return name

    def _contiguous(self, value: str) -> str:
        """Return a value whose elements lie one after the other: itself, or a copy."""
        if self._is_contiguous[value]:
            return value
        return self._transposed(value) or self._made("copy", [value], {}, self._types[value])

    def _transposed(self, value: str) -> str | None:
        """Return what a kernel writes of a transpose; None where the host copies it."""
        node = self._producers.get(value)
        if node is None or node.operator != "transpose" or not self._is_contiguous[str(node.operands[0])]:
            return None
        key = name = f"{value}:transposed"
        if key in self._copies or value in self._constants:
            return self._copies.get(key)
        while name in self._types:
            name += "'"
        call = transposition_call(self._graph, node, name)
        if call is None or not is_valid(call, self._graph):
            return None
        self._copies[key], self._types[name] = name, self._types[value]
        self._kernel(call, [node], None)
        return name

    def _constant(self, node: Node) -> None:
        self._load.append(_host_step(node))
        for result in node.results:
            self._root[result], self._is_contiguous[result] = result, True

    def _host(self, node: Node) -> None:
        is_view = node.operator in VIEW_OPERATORS
        operands = list(node.operands)
        if node.operator == "reshape":
            operands[0] = self._contiguous(str(operands[0]))
        step = _host_step(Node(node.operator, tuple(operands), node.attributes, node.results, node.source))
        if is_view:
            step["view"] = True
            self._root[node.result] = self._root[str(operands[0])]
            self._is_contiguous[node.result] = self._stays_contiguous(node, str(operands[0]))
        else:
            for result in node.results:
                self._root[result], self._is_contiguous[result] = result, True
        self._steps.append(step)

    def _within(
        self, node: Node, word: str, names: Mapping[str, str], results: Sequence[str] = ()
    ) -> Lowering:
        """Return a sub-graph's steps.

        Parameters
        ----------
        word : str
            The attribute that has it.
        names : mapping of str to str
            For each of its inputs the value around.
        results : sequence of str
            Names that its outputs get where a step writes them.
        """
        graph: Graph = node.attributes[word]
        graph = rewrite(opened(graph, {one for one in graph.inputs if names[one] in self._constants}))
        written = written_outputs(graph, constants_of(graph))
        own = {name: f"{node.result}/{word}/{name}" for name in graph.types} | dict(names)
        own |= {a: b for a, b in zip(graph.outputs, results, strict=False) if a in written}
        graph = renamed(graph, own)
        inner = Lowering(graph, make_units(graph), self)
        inner._add_steps()
        return inner

    def _written(self, inner: Lowering, taken: Collection[str]) -> list[str]:
        """Return the outputs of steps within a step, each in memory that they write and no other has."""
        direct = written_outputs(inner._graph, inner._constants)
        names: list[str] = []
        for name in inner._graph.outputs:
            keeps = name in direct and name not in taken
            names.append(name if keeps else inner._made("copy", [name], {}, inner._types[name], again=True))
        return names

    def _branch(self, node: Node) -> None:
        predicate, *rest = map(str, node.operands)
        captured = [self._contiguous(one) for one in rest]
        for result in node.results:
            self._known(result)
        step: dict[str, Any] = {"branch": predicate}
        for word in ("then", "else"):
            names = dict(zip(node.attributes[word].inputs, captured, strict=True))
            inner = self._within(node, word, names, node.results)
            for name, result in zip(inner._graph.outputs, node.results, strict=True):
                if name != result:
                    inner._steps.append(_copy_step(name, result))
            step[word] = inner._steps
        self._steps.append({**step, "results": list(node.results), "source": node.source})

    def _loop(self, node: Node) -> None:
        """Lower a ``while_loop`` or a ``scan``."""
        num_carried = node.attributes["carried"]
        num_each = node.attributes.get("each", 0)
        given = [self._contiguous(str(one)) for one in node.operands]
        body: Graph = node.attributes["body"]
        inside = [f"{node.result}/{name}" for name in body.inputs][: num_carried + num_each]
        for name, type_ in zip(inside, body.inputs.values(), strict=False):
            self._types[name] = type_
        own = [*inside, *given[len(inside) :]]
        each = list(zip(given[num_carried : len(inside)], inside[num_carried:], strict=True))
        for value, name in each:
            self._root[name], self._is_contiguous[name] = self._root[value], True
        condition = None
        if "condition" in node.attributes:
            graph: Graph = node.attributes["condition"]
            inner = self._within(node, "condition", dict(zip(graph.inputs, own, strict=True)))
            condition = {"steps": inner._steps, "value": inner._graph.outputs[0]}
        inner = self._within(node, "body", dict(zip(body.inputs, own, strict=True)))
        written = self._written(inner, given)
        carried = zip(given, inside[:num_carried], written, strict=False)
        stacked = zip(written[num_carried:], node.results[num_carried:], strict=True)
        for result in node.results:
            self._known(result)
        count = self._types[each[0][0]].shape[0] if each else None
        self._steps.append(
            {
                "loop": {
                    "condition": condition,
                    "count": plain(count),
                    "body": inner._steps,
                    "carried": [{"first": a, "state": b, "next": c} for a, b, c in carried],
                    "each": [{"of": a, "as": b} for a, b in each],
                    "stacked": [{"value": a, "result": b} for a, b in stacked],
                },
                "results": list(node.results),
                "source": node.source,
            }
        )

    def _stays_contiguous(self, node: Node, operand: str) -> bool:
        if node.operator == "reshape":
            return True
        if node.operator != "slice" or not self._is_contiguous[operand] or node.attributes["step"] != 1:
            return False
        outer = self._types[operand].shape[: node.attributes["axis"]]
        return all(extent == ONE for extent in outer)

    def _used(self, outputs: Iterable[str]) -> set[str]:
        used = set(outputs)
        for step in all_steps((*self._load, *self._steps)):
            used.update(reads_of(step))
            used.update(writes_of(step))
            if "loop" in step:
                used.update(loop_values(step))
        return used

    def _place(self, outputs: list[str]) -> None:
        """Have parts of concatenations computed where these need them."""
        sizes = set(self._graph.sizes)
        taken = {self._root[name] for name in outputs}
        taken |= {n for n, t in self._types.items() if any(sizes & extent.variables for extent in t.shape)}
        whole = place_parts(self._steps, self._root, self._is_contiguous, self._types, taken)
        self._root.update({name: whole[own] for name, own in self._root.items() if own in whole})

    def _plan(self, outputs: list[str]) -> dict[str, Any]:
        """Return the storages, and the storage of each value that is no output, constant or input."""
        found = Lifetimes(self._steps, self._root)
        fixed = {self._root.get(name, name) for name in outputs}
        lifetimes = {
            name: Lifetime(_num_bytes(self._types[name]), begin, max(begin, found.last[name]))
            for name, begin in found.first.items()
            if name not in fixed
        }
        chosen, storages = plan_storages(lifetimes, self._graph.ranges)
        return {
            "sizes": [[plain(size) for size in one.sizes] for one in storages],
            "of": chosen,
            "max_bytes": sum(-(-one.most // ALIGNMENT) * ALIGNMENT for one in storages),
        }


def _num_bytes(type_: TensorType) -> Extent:
    return type_.num_elements * np.dtype(type_.dtype).itemsize


def _copy_step(value: str, result: str) -> dict[str, Any]:
    return {"host": "copy", "operands": [{"value": value}], "attributes": {}, "results": [result]}


def _host_step(node: Node) -> dict[str, Any]:
    data = node_to_json(node)
    return {
        "host": data["operator"],
        "operands": data["operands"],
        "attributes": {key: plain(value) for key, value in node.attributes.items()},
        "results": data["results"],
        **({"source": node.source} if node.source else {}),
    }
