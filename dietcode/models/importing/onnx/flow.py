"""Branches and loops of ONNX: nodes whose attributes are graphs, which read what is around them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from onnx import GraphProto, NodeProto

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.tensor_type import GraphError, TensorType, axis_of
from dietcode.models.importing.onnx.context import OnnxImporter, OnnxNode, OnnxValue
from dietcode.models.importing.onnx.file import attribute_of
from dietcode.models.importing.onnx.known import Array, Known

ReadGraph: TypeAlias = Callable[[OnnxImporter, GraphProto], None]
OnnxFlowRule: TypeAlias = Callable[[OnnxImporter, OnnxNode, ReadGraph], Sequence[OnnxValue | None]]


class _InnerImporter(OnnxImporter):
    """Reads a graph within a graph, whose tensors it takes as operands.

    Parameters
    ----------
    outer : OnnxImporter
        Of the graph around.
    proto : onnx.GraphProto
    name : str
        Of the sub-graph.
    given : mapping of str to TensorType
        The inputs that the file declares, in order.
    """

    def __init__(
        self, outer: OnnxImporter, proto: GraphProto, name: str, given: Mapping[str, TensorType]
    ) -> None:
        super().__init__(outer.graph.sub_graph(name), outer.opset)
        self._outer, self.proto, self.source = outer, proto, outer.source
        self.weights = outer.weights
        self.captured: dict[str, str] = {}  # its own input by the name of the tensor around
        self.own = [self.graph.add_input(key, type_) for key, type_ in given.items()]
        self.values = dict(zip(given, self.own, strict=True))
        for key in _names_read(proto) - set(given):
            if key in outer.values:
                value = outer.values[key]
                self.values[key] = self.read_around(value) if isinstance(value, str) else value

    def read_around(self, name: str) -> str:
        """Return a tensor of the graph around as an input."""
        if name not in self.captured:
            own = f"around.{len(self.captured)}.{name}"
            self.captured[name] = self.graph.add_input(own, self._outer.graph.types[name])
        return self.captured[name]

    def add_weight(self, name: str, array: Array) -> Known:
        """Add a constant to the weights of the whole model."""
        return self._outer.add_weight(name, array)

    def tensor(self, value: OnnxValue | None) -> str:
        """Return a value as a tensor of this graph."""
        if isinstance(value, Known) and value.weight:
            return self.read_around(self._outer.tensor(value))
        return super().tensor(value)

    def outputs(self, first: int = 0, stop: int | None = None) -> list[str]:
        """Return the results that the file declares, as tensors."""
        names = [one.name for one in self.proto.output][first:stop]
        for name in names:
            if name not in self.values:
                raise GraphError(f"a graph within it gives {name[:60]!r}, which nothing computes")
        return [self.tensor(self.values[name]) for name in names]


def _names_read(proto: GraphProto) -> set[str]:
    """Return the names that a graph reads of the graph around it, and some of its own."""
    found = {one.name for one in proto.output}
    for node in proto.node:
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _names_read(attribute.g)
    made = {name for node in proto.node for name in node.output} | {one.name for one in proto.initializer}
    return found - made


def _joined(bodies: Sequence[_InnerImporter]) -> list[str]:
    """Give all graphs the same inputs in the same order; returns the operands behind the declared ones."""
    names = list(dict.fromkeys(name for body in bodies for name in body.captured))
    for body in bodies:
        own = [body.read_around(name) for name in names]
        types = body.graph.types
        body.graph.inputs = {one: types[one] for one in [*body.own, *own]}
        body.graph.without_unused()
    return names


def _graph(node: NodeProto, word: str) -> GraphProto:
    found: GraphProto = attribute_of(node, word)
    return found


def _truth(m: OnnxImporter, value: OnnxValue | None) -> str:
    return m.reshape(m.cast(m.tensor(value), "bool"), ())


def _constant_truth(value: OnnxValue | None) -> bool | None:
    if isinstance(value, Known) and value.is_constant and value.array.size == 1:
        return bool(value.array.item())
    return None


def _if(m: OnnxImporter, n: OnnxNode, read: ReadGraph) -> Sequence[OnnxValue | None]:
    branches = {"then": _graph(n.proto, "then_branch"), "else": _graph(n.proto, "else_branch")}
    known = _constant_truth(n.value(0))
    if known is not None:
        branch = branches["then" if known else "else"]
        read(m, branch)
        return [m.values.get(one.name) for one in branch.output]
    truth = _truth(m, n.value(0))
    bodies = {word: _InnerImporter(m, proto, word, {}) for word, proto in branches.items()}
    for body in bodies.values():
        read(body, body.proto)
        body.graph.outputs = body.outputs()
    operands = _joined(list(bodies.values()))
    return m.results("cond", truth, *operands, **{word: body.graph for word, body in bodies.items()})


def _loop(m: OnnxImporter, n: OnnxNode, read: ReadGraph) -> Sequence[OnnxValue | None]:
    """Return the last state, and what each round gave, stacked."""
    proto = _graph(n.proto, "body")
    initial = [m.tensor(one) for one in n.values[2:]]
    inputs = [one.name for one in proto.input]
    if len(inputs) != len(initial) + 2 or len(proto.output) < len(initial) + 1:
        raise GraphError(f"{len(initial)} states, and a body of {len(inputs)} inputs; allowed: two more")
    most, begin = n.value(0), n.value(1)
    if _constant_truth(begin) is False:
        raise GraphError("a condition that never holds; allowed: one that may")
    state = [TensorType("int64", ()), TensorType("bool", ()), *(m.type(one) for one in initial)]
    body = _InnerImporter(m, proto, "body", dict(zip(inputs, state, strict=True)))
    read(body, proto)
    holds = body.values[proto.output[0].name]
    counted = begin is None or _constant_truth(begin) is True
    goes_on = _constant_truth(holds) is True or (counted and holds == body.own[1])
    results = body.outputs(1)
    if counted and goes_on and isinstance(most, Known):
        return _counted(m, body, most, initial, results)
    return _conditional(m, body, (most, begin, holds), initial, results)


def _counted(
    m: OnnxImporter, body: _InnerImporter, most: Known, initial: Sequence[str], results: Sequence[str]
) -> Sequence[OnnxValue | None]:
    """Return the results of as many rounds as follow from shapes.

    Parameters
    ----------
    m : OnnxImporter
    body : _InnerImporter
        Its inputs are the round's number, the condition and the state.
    most : Known
        How many rounds.
    initial, results : sequence of str
        The state before the loop, and what the body gives without the condition.
    """
    count = Extent.of(most.array.reshape(-1)[0])
    number, truth, *states = body.own
    rounds = m.add("arange", stop=count)
    always = m.add("full", shape=(), value=True, dtype="bool")
    body.own = [*states, number, truth]  # the condition is one that all rounds read
    body.graph.outputs = list(results)
    operands = [*initial, rounds, always, *_joined([body])]
    return m.results("scan", *operands, carried=len(states), each=1, body=body.graph)


def _conditional(
    m: OnnxImporter,
    body: _InnerImporter,
    control: tuple[OnnxValue | None, OnnxValue | None, OnnxValue],
    initial: Sequence[str],
    results: Sequence[str],
) -> Sequence[OnnxValue | None]:
    """Return the results of a loop that a condition ends, or a number that depends on values.

    What each round gives is put into a tensor for the most rounds that there can be.

    Parameters
    ----------
    m : OnnxImporter
    body : _InnerImporter
    control : tuple
        The most rounds, the condition before the first, and the one after each.
    initial, results : sequence of str
        The state before the loop, and what the body gives without the condition.
    """
    most, begin, holds = control
    number = len(initial)
    stacks, length = [], Extent()
    if len(results) > number:
        if not isinstance(most, Known):
            raise GraphError("stacks what each of unknown many rounds gives; allowed: a limit from shapes")
        length = Extent.of(most.array.reshape(-1)[0])
    for key, one in enumerate(results[number:]):
        own = body.type(one)
        type_ = TensorType(own.dtype, (length, *own.shape))
        stacks.append(m.add("full", shape=type_.shape, value=0, dtype=own.dtype))
        results = list(results)
        stack = body.graph.add_input(f"stack.{key}", type_)
        body.own.append(stack)
        row, place = body.reshape(one, (1, *own.shape)), body.reshape(body.own[0], (1,))
        results[number + key] = body.add("scatter_points", stack, row, place, by="set")
    after = body.add("add", body.own[0], 1)
    body.graph.outputs = [after, body.reshape(body.cast(body.tensor(holds), "bool"), ()), *results]
    inputs = {name: body.graph.types[name] for name in body.own}
    condition = _InnerImporter(m, GraphProto(), "condition", inputs)
    again = condition.own[1]
    if most is not None:
        limit = most if isinstance(most, Known) else condition.read_around(m.reshape(m.tensor(most), ()))
        bound = condition.reshape(condition.tensor(limit), ())
        again = condition.add("and", again, condition.add("less", condition.own[0], bound))
    condition.graph.outputs = [again]
    first = m.add("full", shape=(), value=0, dtype="int64")
    truth = m.add("full", shape=(), value=True, dtype="bool") if begin is None else _truth(m, begin)
    state = [first, truth, *initial, *stacks]
    operands = _joined([condition, body])
    graphs: dict[str, Graph] = {"condition": condition.graph, "body": body.graph}
    found = m.results("while_loop", *state, *operands, carried=len(state), **graphs)
    if not stacks:
        return found[2:]
    size = m.new_size(length)
    m.add("size", found[0], size=size)
    return [*found[2 : 2 + number], *(m.slice(one, 0, 0, size) for one in found[2 + number :])]


def _scan(m: OnnxImporter, n: OnnxNode, read: ReadGraph) -> Sequence[OnnxValue | None]:
    proto, num_each = _graph(n.proto, "body"), n.attribute("num_scan_inputs")
    carried = len(n.values) - num_each
    operands = [n.tensor(k) for k in range(len(n.values))]
    for k in range(num_each):
        axis = n.attribute("scan_input_axes", [0] * num_each)[k]
        backward = n.attribute("scan_input_directions", [0] * num_each)[k]
        operands[carried + k] = _turned(m, operands[carried + k], axis, bool(backward), to_front=True)
    types = [m.type(one) for one in operands]
    types[carried:] = [TensorType(one.dtype, one.shape[1:]) for one in types[carried:]]
    names = [one.name for one in proto.input]
    body = _InnerImporter(m, proto, "body", dict(zip(names, types, strict=True)))
    read(body, proto)
    body.graph.outputs = body.outputs()
    more = _joined([body])
    found = list(m.results("scan", *operands, *more, carried=carried, each=num_each, body=body.graph))
    num_stacked = len(found) - carried
    for k in range(num_stacked):
        axis = n.attribute("scan_output_axes", [0] * num_stacked)[k]
        backward = n.attribute("scan_output_directions", [0] * num_stacked)[k]
        found[carried + k] = _turned(m, found[carried + k], axis, bool(backward), to_front=False)
    return found


def _turned(m: OnnxImporter, x: str, axis: int, backward: bool, *, to_front: bool) -> str:
    """Return x with an axis moved to the front, or back from there, and the other way round where it is."""
    rank = m.rank(x)
    axis = axis_of(axis, rank)
    x = m.add("flip", x, axes=(axis if to_front else 0,)) if backward else x
    order = [axis, *(k for k in range(rank) if k != axis)]
    return m.transpose(x, order if to_front else [order.index(k) for k in range(rank)])


ONNX_FLOW: Mapping[str, OnnxFlowRule] = {"If": _if, "Loop": _loop, "Scan": _scan}
