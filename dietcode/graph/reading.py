"""A graph out of plain data that anybody may have written: everything is checked, nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dietcode.errors import ModelError
from dietcode.graph.attributes import read_dtype, read_number
from dietcode.graph.extent import Extent
from dietcode.graph.extent_texts import extent_of_text, texts_of_one_graph
from dietcode.graph.graph import FORMAT, Graph, Value
from dietcode.graph.limits import MAX_EXTENT, check_size
from dietcode.graph.signature import check_halves, input_names, num_outputs
from dietcode.graph.tensor_type import MAX_RANK, TensorType
from dietcode.workload.text import clip, field_path, one_line

MAX_DIMENSIONS = 32
MAX_INPUTS = 64
MAX_OUTPUTS = 256
MAX_WEIGHTS = 4096
MAX_NODES = 20_000
MAX_GRAPHS = 256
MAX_DEPTH = 8
_MAX_OPERANDS = 4096
_MAX_NAME = 200
_DIMENSION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED = ("min", "max")
_FIELDS = ("format", "name", "dimensions", "sizes", "inputs", "weights", "nodes", "outputs", "signature")
_SUB_GRAPH_FIELDS = ("inputs", "nodes", "outputs")
_NODE_FIELDS = ("results", "operator", "operands", "attributes", "source")
Read = TypeVar("Read")


def read_graph(data: Any) -> Graph:
    """Return the graph that `Graph.to_json` wrote.

    Raises
    ------
    ModelError
        It is none; the message begins with the path of the field, as ``nodes.3.attributes.axis``.
    """
    with texts_of_one_graph():
        return _read_graph(data)


def _read_graph(data: Any) -> Graph:
    fields = _mapping(data, (), _FIELDS)
    if fields.get("format") != FORMAT:
        raise _refusal(("format",), f"given {clip(fields.get('format'))}; allowed: {FORMAT}")
    graph = Graph(_name(fields.get("name"), ("name",)), _dimensions(fields.get("dimensions")))
    for name, given in _counted(fields.get("sizes", {}), ("sizes",), MAX_DIMENSIONS).items():
        graph.sizes[name] = _checked(("sizes", name), extent_of_text, given)
        unknown = ({name} | graph.sizes[name].variables) - set(graph.ranges)
        if unknown:
            raise _refusal(("sizes", name), f"{clip(min(unknown))} is no dimension")
    for word, most, add in (
        ("inputs", MAX_INPUTS, graph.add_input),
        ("weights", MAX_WEIGHTS, graph.add_weight),
    ):
        for name, given in _counted(fields.get(word), (word,), most).items():
            path = (word, name)
            _unused(graph, _name(name, (word,)), path)
            add(name, _type(graph, given, path))
    _read_body(graph, fields, (), _Budget())
    _check_sizes(graph)
    graph.signature = _signature(graph, fields.get("signature"))
    return graph


def _check_sizes(graph: Graph) -> None:
    """Refuse sizes that no node sets, and inputs that have one."""
    for name, type_ in graph.inputs.items():
        for extent in type_.shape:
            if extent.variables & set(graph.sizes):
                raise _refusal(("inputs", name), f"extent {extent} is set by a node; allowed: dimensions")
    missing = set(graph.sizes) - _set_within(graph)
    if missing:
        raise _refusal(("sizes", min(missing)), "no node sets it; allowed: those of a node's attribute size")


def _set_within(graph: Graph) -> set[str]:
    inner = [sub for node in graph.nodes for sub in node.graphs.values()]
    return set(graph.setters()).union(*map(_set_within, inner))


class _Budget:
    """What is left of the nodes and sub-graphs of a whole model.

    Attributes
    ----------
    nodes, graphs : int
    known : frozenset of str
        The sizes that nodes have set so far.
    """

    def __init__(self) -> None:
        self.nodes, self.graphs = MAX_NODES, MAX_GRAPHS
        self.known: frozenset[str] = frozenset()


def _read_body(graph: Graph, fields: Mapping[str, Any], path: tuple[object, ...], budget: _Budget) -> None:
    nodes = fields.get("nodes")
    budget.nodes -= len(nodes) if isinstance(nodes, list) else 0
    if not isinstance(nodes, list) or budget.nodes < 0:
        raise _refusal((*path, "nodes"), f"given {_said(nodes)}; allowed: a list of at most {MAX_NODES}")
    for number, given in enumerate(nodes):
        _add_node(graph, given, (*path, "nodes", number), budget)
    graph.outputs = _outputs(graph, fields.get("outputs"), (*path, "outputs"))


def _sub_graph(graph: Graph, given: Any, path: tuple[object, ...], budget: _Budget) -> Graph:
    """Return a graph of an attribute: closed, over the dimensions of the model."""
    fields = _mapping(given, path, _SUB_GRAPH_FIELDS)
    budget.graphs -= 1
    depth = path.count("attributes")
    if budget.graphs < 0 or depth > MAX_DEPTH:
        allowed = f"at most {MAX_GRAPHS} in a model, {MAX_DEPTH} deep"
        raise _refusal(path, f"one graph too many; allowed: {allowed}")
    found, around = graph.sub_graph(str(path[-1])), budget.known
    for name, type_ in _counted(fields.get("inputs"), (*path, "inputs"), _MAX_OPERANDS).items():
        own = (*path, "inputs", name)
        _unused(found, _name(name, (*path, "inputs")), own)
        found.add_input(name, _type(found, type_, own))
    _read_body(found, fields, path, budget)
    budget.known = around  # what is set within is not known around
    return found


def _refusal(path: tuple[object, ...], problem: str) -> ModelError:
    return ModelError(f"{field_path(path)}: {one_line(problem)}" if path else one_line(problem))


def _said(given: Any) -> str:
    return f"{len(given)}" if isinstance(given, list | dict) else clip(given)


def _checked(path: tuple[object, ...], read: Callable[..., Read], *given: Any) -> Read:
    """Return what a reader makes of data; what it refuses gets the path of the field."""
    try:
        return read(*given)
    except ModelError:
        raise
    except (ValueError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise _refusal(path, str(error) or "too deep") from None


def _mapping(given: Any, path: tuple[object, ...], allowed: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise _refusal(path, f"given {clip(given)}; allowed: a mapping of {', '.join(allowed)}")
    for key in given:
        if key not in allowed:
            raise _refusal((*path, key), f"unknown; allowed: {', '.join(allowed)}")
    return given


def _counted(given: Any, path: tuple[object, ...], most: int) -> Mapping[str, Any]:
    if not isinstance(given, dict) or len(given) > most:
        raise _refusal(path, f"given {_said(given)}; allowed: a mapping of at most {most}")
    return given


def _name(given: Any, path: tuple[object, ...]) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= _MAX_NAME or not given.isprintable():
        raise _refusal(path, f"given {clip(given)}; allowed: 1 to {_MAX_NAME} printable characters")
    return given


def _unused(graph: Graph, name: str, path: tuple[object, ...]) -> None:
    if name in graph.types:
        raise _refusal(path, f"{clip(name)} is there already; allowed: a name once")


def _dimensions(given: Any) -> dict[str, tuple[int, int]]:
    found = {}
    for name, own in _counted(given, ("dimensions",), MAX_DIMENSIONS).items():
        path = ("dimensions", name)
        if not isinstance(name, str) or not _DIMENSION.fullmatch(name) or name in _RESERVED:
            raise _refusal(path, "allowed: a letter, then letters, digits and _; not min or max")
        bounds = _mapping(own, path, ("min", "max"))
        low, high = bounds.get("min"), bounds.get("max")
        if type(low) is not int or type(high) is not int or not 0 <= low <= high <= MAX_EXTENT:
            raise _refusal(
                path, f"given {clip(low)} to {clip(high)}; allowed: whole numbers from 0 up, min first"
            )
        found[name] = (low, high)
    return found


def _type(graph: Graph, given: Any, path: tuple[object, ...]) -> TensorType:
    fields = _mapping(given, path, ("dtype", "shape"))
    dtype = _checked((*path, "dtype"), read_dtype, fields.get("dtype"))
    shape = fields.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        raise _refusal((*path, "shape"), f"given {_said(shape)}; allowed: a list of at most {MAX_RANK}")
    read = TensorType(
        dtype,
        tuple(_checked((*path, "shape", axis), extent_of_text, one) for axis, one in enumerate(shape)),
    )
    _check_type(graph, read, path)
    return read


def _check_type(graph: Graph, type_: TensorType, path: tuple[object, ...], is_made: bool = False) -> None:
    """Refuse dimensions that are not declared, and sizes that `check_size` refuses."""
    for extent in type_.shape:
        unknown = extent.variables - set(graph.ranges)
        if unknown:
            raise _refusal(path, f"{type_}: {clip(min(unknown))} is no dimension")
    _checked(path, check_size, type_, graph.ranges, is_made)


def _operand(graph: Graph, given: Any, path: tuple[object, ...]) -> Value:
    if given is None:
        return None
    if isinstance(given, dict):
        name = _mapping(given, path, ("value",)).get("value")
        if not isinstance(name, str) or name not in graph.types:
            raise _refusal(path, f"{clip(name)}: no value that was there before")
        return name
    return _checked(path, read_number, given)


def _add_node(graph: Graph, given: Any, path: tuple[object, ...], budget: _Budget) -> None:
    fields = _mapping(given, path, _NODE_FIELDS)
    operands = fields.get("operands")
    if not isinstance(operands, list) or len(operands) > _MAX_OPERANDS:
        allowed = f"a list of at most {_MAX_OPERANDS}"
        raise _refusal((*path, "operands"), f"given {_said(operands)}; allowed: {allowed}")
    read = [_operand(graph, one, (*path, "operands", k)) for k, one in enumerate(operands)]
    attributes = fields.get("attributes", {})
    if not isinstance(attributes, dict) or not all(isinstance(key, str) for key in attributes):
        raise _refusal((*path, "attributes"), f"given {clip(attributes)}; allowed: a mapping")
    attributes = {
        key: _sub_graph(graph, one, (*path, "attributes", key), budget) if isinstance(one, dict) else one
        for key, one in attributes.items()
    }
    source = fields.get("source", "")
    if source != "":
        _name(source, (*path, "source"))
    results = fields.get("results")
    if not isinstance(results, list) or not results:
        raise _refusal((*path, "results"), f"given {clip(results)}; allowed: names")
    for number, name in enumerate(results[:MAX_OUTPUTS]):
        _unused(graph, _name(name, (*path, "results", number)), (*path, "results", number))
    operator = fields.get("operator")
    if not isinstance(operator, str):
        raise _refusal((*path, "operator"), f"given {clip(operator)}; allowed: a name")
    node, types = _checked(path, graph.checked, operator, read, attributes, source, results[0])
    if list(node.results) != results:
        raise _refusal((*path, "results"), f"given {clip(results)}; allowed: {', '.join(node.results)}")
    for type_ in types:
        _check_type(graph, type_, path, is_made=not node.tensors)
    if "size" in node.attributes:
        budget.known |= node.attributes["size"].variables
    extents = [extent for type_ in types for extent in type_.shape]
    extents += [one for one in node.attributes.values() if isinstance(one, Extent)]
    unset = {name for one in extents for name in one.variables & set(graph.sizes)} - budget.known
    if unset:
        raise _refusal(path, f"{clip(min(unset))}: no node before sets this size")
    graph.nodes.append(node)
    graph.types.update(zip(node.results, types, strict=True))


def _outputs(graph: Graph, given: Any, path: tuple[object, ...]) -> list[str]:
    if not isinstance(given, list) or not 0 < len(given) <= MAX_OUTPUTS:
        raise _refusal(path, f"given {_said(given)}; allowed: 1 to {MAX_OUTPUTS} names")
    for number, name in enumerate(given):
        if not isinstance(name, str) or name not in graph.types:
            raise _refusal((*path, number), f"{clip(name)}: no value of the graph")
    return list(given)


def _signature(graph: Graph, given: Any) -> dict[str, Any]:
    path = ("signature",)
    fields = _mapping(given, path, ("positional", "keyword", "output", "names", "halves"))
    names = _checked(path, input_names, fields)
    if sorted(names) != sorted(graph.inputs):
        raise _refusal(path, f"its inputs are {clip(names)}; allowed: {clip(list(graph.inputs))}, each once")
    count = _checked((*path, "output"), num_outputs, fields.get("output"))
    if count != len(graph.outputs):
        raise _refusal((*path, "output"), f"{count} outputs; allowed: {len(graph.outputs)}")
    _checked(path, check_halves, fields, graph.inputs, graph.output_types)
    return dict(fields)
