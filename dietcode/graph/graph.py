"""A whole model as data: inputs with symbolic shapes, weights by name, nodes of known operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dietcode.graph.attributes import REQUIRED, plain
from dietcode.graph.extent import Extent, simplified
from dietcode.graph.operators import GRAPH_OPERATORS
from dietcode.graph.tensor_type import GraphError, TensorType
from dietcode.workload.text import clip, suggest

FORMAT = "dietcode-graph/1"
CHECKS = ("assert", "size")  # what may be an error stays, though no output reads it
Value: TypeAlias = str | int | float | None  # the name of a tensor, a number, or an operand that is left out


@dataclass(frozen=True)
class Node:
    """One operator applied.

    Attributes
    ----------
    operator : str
        A key of `dietcode.graph.operators.GRAPH_OPERATORS`.
    operands : tuple of str, number or None
    attributes : mapping of str to object
        All of the operator's, read.
    results : tuple of str
        The names of its results.
    source : str
        Where the model's author wrote it, as ``file:line``; may be empty.
    """

    operator: str
    operands: tuple[Value, ...]
    attributes: Mapping[str, Any]
    results: tuple[str, ...]
    source: str = ""

    @property
    def result(self) -> str:
        """The name of its first result."""
        return self.results[0]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names among its operands."""
        return tuple(one for one in self.operands if isinstance(one, str))

    @property
    def graphs(self) -> dict[str, Graph]:
        """The sub-graphs among its attributes: closed graphs, whose inputs are operands in their order."""
        return {key: one for key, one in self.attributes.items() if isinstance(one, Graph)}


@dataclass
class Graph:
    """A model; nodes are in an order in which they can be computed.

    Attributes
    ----------
    name : str
    ranges : dict of str to (int, int)
        The least and the greatest value of each dimension.
    inputs, weights : dict of str to TensorType
        What calls give, in their order; what the file of weights gives.
    nodes : list of Node
    outputs : list of str
        Names of values, in the order of the leaves of `tree`.
    types : dict of str to TensorType
        Of every value.
    signature : dict
        How calls give inputs and get outputs, see `dietcode.graph.signature`.
    sizes : dict of str to Extent
        The dimensions that a node sets to what it computes, with what they are at most.
    additions : list of int
        How many nodes an importer has added, to this graph and its sub-graphs together.
    """

    name: str
    ranges: dict[str, tuple[int, int]]
    inputs: dict[str, TensorType] = field(default_factory=dict)
    weights: dict[str, TensorType] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    signature: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Extent] = field(default_factory=dict)
    additions: list[int] = field(default_factory=lambda: [0], repr=False, compare=False)

    def add_input(self, name: str, type_: TensorType) -> str:
        """Add what a call gives; a GraphError where the name is taken."""
        self._check_free(name)
        self.inputs[name] = self.types[name] = type_
        return name

    def add_weight(self, name: str, type_: TensorType) -> str:
        """Add what the file of weights gives; a GraphError where the name is taken."""
        self._check_free(name)
        self.weights[name] = self.types[name] = type_
        return name

    def _check_free(self, *names: str) -> None:
        taken = [one for one in names if one in self.types]
        if taken:
            raise GraphError(f"{clip(taken[0])} is there already; allowed: a name once")

    def add(
        self, operator: str, *operands: Value, source: str = "", name: str = "", **attributes: Any
    ) -> str:
        """Append a node and return the name of its first result.

        Raises
        ------
        GraphError
            The operator does not take these operands or attributes.
        """
        node, types = self.checked(operator, operands, attributes, source, name)
        self.nodes.append(node)
        self.types.update(zip(node.results, types, strict=True))
        return node.result

    def checked(
        self, operator: str, operands: Sequence[Value], attributes: Mapping[str, Any], source: str, name: str
    ) -> tuple[Node, tuple[TensorType, ...]]:
        """Return a node that may be added, and the types of its results."""
        known = GRAPH_OPERATORS.get(operator)
        if known is None:
            raise GraphError(f"operator {clip(operator)}{suggest(operator, GRAPH_OPERATORS)}")
        if not known.least <= len(operands) <= known.most:
            raise GraphError(f"{operator}: {len(operands)} operands; allowed: {known.least} to {known.most}")
        unknown = set(attributes) - set(known.attributes)
        if unknown:
            raise GraphError(
                f"{operator}: {clip(min(unknown))}; allowed: {', '.join(known.attributes) or 'none'}"
            )
        read = {}
        for key, attribute in known.attributes.items():
            given = attributes.get(key, attribute.default)
            if given is REQUIRED:
                raise GraphError(f"{operator}: {key} is missing")
            read[key] = given if given is attribute.default else attribute.read(given)
        types = [self.types[one] if isinstance(one, str) else one for one in operands]
        try:
            inferred = known.infer(types, read)
        except GraphError as error:
            raise GraphError(f"{operator}: {error}") from None
        results = list(map(self.simplified, inferred))
        name = name or self.fresh()
        names = (name, *(f"{name}.{number}" for number in range(1, len(results))))
        taken = [one for one in names if one in self.types]
        if taken:
            raise GraphError(f"{operator}: {clip(taken[0])} is there already; allowed: a name once")
        return Node(operator, tuple(operands), read, names, source), tuple(results)

    def simplified(self, type_: TensorType) -> TensorType:
        """Return a type whose extents are decided where ranges decide them."""
        return TensorType(type_.dtype, tuple(simplified(extent, self.ranges) for extent in type_.shape))

    def fresh(self) -> str:
        """Return a name that no value has."""
        number = len(self.types)
        while f"v{number}" in self.types:
            number += 1
        return f"v{number}"

    def consumers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value; outputs of the graph are not among them."""
        found: dict[str, list[Node]] = {name: [] for name in self.types}
        for node in self.nodes:
            for name in dict.fromkeys(node.tensors):
                found[name].append(node)
        return found

    def producers(self) -> dict[str, Node]:
        """Return the node of each value that a node computes."""
        return {result: node for node in self.nodes for result in node.results}

    def setters(self) -> dict[str, str]:
        """Return, for each dimension that a node of this graph sets, the first result of that node."""
        found: dict[str, str] = {}
        for node in self.nodes if self.sizes else ():
            for name in node.attributes["size"].variables if "size" in node.attributes else ():
                if name in self.sizes:
                    found.setdefault(name, node.result)
        return found

    def needs(self, node: Node, setters: Mapping[str, str]) -> tuple[str, ...]:
        """Return the values that have to be there before a node: its operands, and what sets its extents."""
        if not setters:
            return node.tensors
        types = [self.types[name] for name in node.results]
        used = variables_of(node).union(*(extent.variables for one in types for extent in one.shape))
        own = {setters[name] for name in used if name in setters}
        return (*node.tensors, *sorted(own - set(node.results)))

    def without_unused(self) -> None:
        """Drop nodes and weights that no output needs; inputs and checks stay."""
        needed, kept = set(self.outputs), []
        setters = self.setters()
        for node in reversed(self.nodes):
            if node.operator in CHECKS or needed & set(node.results):
                needed.update(self.needs(node, setters))
                kept.append(node)
        self.nodes = kept[::-1]
        self.weights = {name: type_ for name, type_ in self.weights.items() if name in needed}
        made = {result for node in self.nodes for result in node.results}
        self.types = {
            n: t for n, t in self.types.items() if n in made or n in self.inputs or n in self.weights
        }

    def sub_graph(self, name: str) -> Graph:
        """Return an empty graph over the same dimensions, for an attribute of a node."""
        return Graph(name, self.ranges, sizes=self.sizes, additions=self.additions)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """The type of each output."""
        return tuple(self.types[name] for name in self.outputs)

    @property
    def num_nodes(self) -> int:
        """The number of its nodes, those of sub-graphs among them."""
        return sum(1 + sum(one.num_nodes for one in node.graphs.values()) for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `dietcode.graph.reading.read_graph`."""
        return {
            "format": FORMAT,
            "name": self.name,
            "dimensions": {name: {"min": low, "max": high} for name, (low, high) in self.ranges.items()},
            **({"sizes": {n: plain(most) for n, most in self.sizes.items()}} if self.sizes else {}),
            "inputs": _typed(self.inputs),
            "weights": _typed(self.weights),
            "nodes": [node_to_json(node) for node in self.nodes],
            "outputs": list(self.outputs),
            "signature": self.signature,
        }


def variables_of(node: Node) -> set[str]:
    """Return the dimensions in a node's attributes, those of sub-graphs among them."""
    found: set[str] = set()
    for value in node.attributes.values():
        if isinstance(value, Graph):
            for type_ in value.types.values():
                found.update(name for extent in type_.shape for name in extent.variables)
            for inner in value.nodes:
                found |= variables_of(inner)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Extent):
                found |= one.variables
    return found


def _typed(types: Mapping[str, TensorType]) -> dict[str, Any]:
    return {name: {"dtype": t.dtype, "shape": plain(t.shape)} for name, t in types.items()}


def _sub_graph_to_json(graph: Graph) -> dict[str, Any]:
    """Return plain data of a sub-graph; names in it are its own."""
    return {
        "inputs": _typed(graph.inputs),
        "nodes": [node_to_json(node) for node in graph.nodes],
        "outputs": list(graph.outputs),
    }


def node_to_json(node: Node) -> dict[str, Any]:
    """Return plain data of a node; attributes with their defaults are left out."""
    defaults = {key: one.default for key, one in GRAPH_OPERATORS[node.operator].attributes.items()}
    given = {
        key: _sub_graph_to_json(value) if isinstance(value, Graph) else plain(value)
        for key, value in node.attributes.items()
        if value is not defaults[key] and value != defaults[key]
    }
    operands = [plain(one) if not isinstance(one, str) else {"value": one} for one in node.operands]
    data: dict[str, Any] = {"results": list(node.results), "operator": node.operator, "operands": operands}
    if given:
        data["attributes"] = given
    if node.source:
        data["source"] = node.source
    return data
