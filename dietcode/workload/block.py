"""A block as a spec has it: named nodes, each an operator on tensors and other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from dietcode.errors import SpecError
from dietcode.workload.operators import LARGEST_NUMBER, OPERATORS, REQUIRED
from dietcode.workload.text import clip, field_path, suggest
from dietcode.workload.variables import SpecModel

MAX_NODES = 256
_PATH = ("op", "block", "graph")

Operand = str | float


@dataclass(frozen=True)
class BlockNode:
    """One operator of a block.

    Attributes
    ----------
    operator : str
        A key of `dietcode.workload.operators.OPERATORS`.
    operands : tuple of str or float
        Names of tensors and nodes, or numbers.
    attributes : tuple of (str, object)
        In the order of the operator's, those of no value left out.
    """

    operator: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute; None where it has none."""
        return dict(self.attributes).get(name)

    def to_json(self) -> dict[str, Any]:
        """Return plain data as a spec has it: ``{add: [X, R]}``."""
        own = {name: list(v) if isinstance(v, tuple) else v for name, v in self.attributes}
        return {self.operator: list(self.operands), **own}


def read_node(name: str, given: object) -> BlockNode:
    """Read a node ``{OPERATOR: operands, ATTRIBUTE: value, …}``.

    Raises
    ------
    SpecError
        With the path of what is wrong, what was given and what is allowed.
    """
    path = (*_PATH, name)
    words = ", ".join(OPERATORS)
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise SpecError(
            field_path(path), f"given {clip(given)}; allowed: a mapping of an operator, one of {words}"
        )
    found = [key for key in given if key in OPERATORS]
    if not found:
        hint = suggest(next(iter(given), None), OPERATORS)
        raise SpecError(field_path(path), f"given {clip(list(given))}; allowed: one of {words}{hint}")
    if len(found) > 1:
        raise SpecError(field_path(path), f"given {' and '.join(found)}; allowed: one operator a node")
    operator = OPERATORS[found[0]]
    for key in given:
        if key != found[0] and key not in operator.attributes:
            allowed = ", ".join((found[0], *operator.attributes))
            problem = f"unknown field; allowed: {allowed}{suggest(key, operator.attributes)}"
            raise SpecError(field_path((*path, key)), problem)
    operands = _operands((*path, found[0]), found[0], given[found[0]])
    attributes = []
    for key, attribute in operator.attributes.items():
        value = attribute.default
        if given.get(key) is not None:
            try:
                value = attribute.read(given[key])
            except ValueError as error:
                raise SpecError(field_path((*path, key)), str(error)) from error
        if value is REQUIRED:
            raise SpecError(field_path((*path, key)), f"missing; {found[0]} needs it")
        if value is not None:
            attributes.append((key, value))
    if operator.needs_attribute and not attributes:
        problem = f"missing; {found[0]} needs {' or '.join(operator.attributes)}, or both"
        raise SpecError(field_path(path), problem)
    return BlockNode(found[0], operands, tuple(attributes))


def _operands(path: tuple[str, ...], word: str, given: object) -> tuple[Operand, ...]:
    operator = OPERATORS[word]
    many: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if not len(operator.operands) - operator.num_optional <= len(many) <= len(operator.operands):
        problem = f"given {len(many)} operands; allowed: {operator.allowed_operands()}"
        raise SpecError(field_path(path), problem)
    for number, operand in enumerate(many):
        is_number = isinstance(operand, int | float) and not isinstance(operand, bool)
        if not isinstance(operand, str) and not (is_number and abs(operand) <= LARGEST_NUMBER):
            problem = f"given {clip(operand)}; allowed: the name of a tensor or node, or a number up to 1e30"
            raise SpecError(field_path((*path, number)), problem)
    return tuple(operand if isinstance(operand, str) else float(operand) for operand in many)


def _read_graph(given: object) -> object:
    path = field_path(_PATH)
    if not isinstance(given, Mapping) or not 1 <= len(given) <= MAX_NODES:
        allowed = f"a mapping of 1 to {MAX_NODES} names to operators"
        raise SpecError(path, f"given {clip(given)}; allowed: {allowed}")
    nodes = {}
    for name, node in given.items():
        if not isinstance(name, str):
            raise SpecError(
                path, f"given the key {clip(name)}; allowed: a name; quote what YAML reads as a number"
            )
        nodes[name] = node if isinstance(node, BlockNode) else read_node(name, node)
    return nodes


def _graph_to_json(graph: Mapping[str, BlockNode]) -> dict[str, Any]:
    return {name: node.to_json() for name, node in graph.items()}


Graph = Annotated[
    dict[str, Any],
    BeforeValidator(_read_graph),
    PlainSerializer(_graph_to_json),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "object"}}),
]


@dataclass(frozen=True)
class BlockOutput:
    """A result: the value of a node, or a table some rows of which it is written to.

    Attributes
    ----------
    name : str
        Of the node.
    into, at : str
        Names of the table and of the positions of the rows; empty for a result of its own.
    """

    name: str
    into: str = ""
    at: str = ""

    def to_json(self) -> str | dict[str, Any]:
        """Return plain data as a spec has it: ``Y`` or ``{Y: {into: table, at: rows}}``."""
        return {self.name: {"into": self.into, "at": self.at}} if self.into else self.name


def _read_into(path: str, given: object, allowed: str) -> BlockOutput:
    if isinstance(given, dict) and len(given) == 1:
        ((name, facts),) = given.items()
        is_known = isinstance(facts, dict) and set(facts) == {"into", "at"}
        if is_known and all(isinstance(value, str) and value for value in (name, *facts.values())):
            return BlockOutput(name, facts["into"], facts["at"])
    raise SpecError(path, f"given {clip(given)}; allowed: {allowed}")


def _read_outputs(given: object) -> object:
    path = ("op", "block", "outputs")
    allowed = "the name of a node, or {NODE: {into: TABLE, at: POSITIONS}}"
    if not isinstance(given, list | tuple):
        raise SpecError(field_path(path), f"given {clip(given)}; allowed: a list, each {allowed}")
    found = []
    for number, one in enumerate(given):
        if isinstance(one, BlockOutput):
            found.append(one)
        elif isinstance(one, str):
            found.append(BlockOutput(one))
        else:
            found.append(_read_into(field_path((*path, number)), one, allowed))
    return tuple(found)


def _outputs_to_json(outputs: tuple[BlockOutput, ...]) -> list[str | dict[str, Any]]:
    return [one.to_json() for one in outputs]


Outputs = Annotated[
    tuple[Any, ...],
    BeforeValidator(_read_outputs),
    PlainSerializer(_outputs_to_json),
    WithJsonSchema({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object"}]}}),
]


class BlockSpec(SpecModel):
    """A small graph of operators that one kernel computes.

    Parameters
    ----------
    version : int
        Of this format: 1.
    graph : Graph
        Each node by its name: an operator with its operands, and what else it takes; in any order.
    outputs : Outputs
        The nodes that are results, in the order in which a call returns them; ``{NODE: {into: TABLE, at:
        POSITIONS}}`` for one that is written to rows of a table.
    """

    version: Literal[1]
    graph: Graph
    outputs: Outputs

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that are results."""
        return tuple(one.name for one in self.outputs)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        graph = _graph_to_json(self.graph)
        return {"version": self.version, "graph": graph, "outputs": _outputs_to_json(self.outputs)}
