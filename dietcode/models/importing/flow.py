"""Control flow of PyTorch's: higher-order operators, whose functions become sub-graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.tensor_type import GraphError, TensorType
from dietcode.models.importing.context import Importer, dtype_name
from dietcode.models.importing.sizes import truth_of

ImportNodes: TypeAlias = Callable[[Importer, Any], Sequence[Any]]
FlowRule: TypeAlias = Callable[[Importer, Any, ImportNodes], tuple[str, ...]]


class _Functions:
    """The functions of one higher-order operator, and what they read.

    Parameters
    ----------
    importer : Importer
        Of the graph around.
    node : torch.fx.Node
    arguments : sequence
        What each function gets: values of the graph around. Tensors become operands, and inputs of the
        sub-graphs; numbers and sizes are the same inside.
    rank_less : sequence of int
        Which arguments lose their first axis inside.
    """

    def __init__(
        self, importer: Importer, node: Any, arguments: Sequence[Any], rank_less: Sequence[int] = ()
    ) -> None:
        self._importer, self._node = importer, node
        self._values = [_value(importer, one) for one in arguments]
        self._rank_less = set(rank_less)
        self.operands = [one for one in self._values if isinstance(one, str)]

    def graph(self, argument: Any, word: str, import_nodes: ImportNodes) -> Graph:
        """Return the sub-graph of a function, its outputs not yet set right."""
        module = getattr(self._node.graph.owning_module, argument.target)
        found = self._importer.graph.sub_graph(word)
        inner = Importer(found, self._importer.symbols)
        placeholders = [one for one in module.graph.nodes if one.op == "placeholder"]
        for number, (own, value) in enumerate(zip(placeholders, self._values, strict=True)):
            if isinstance(value, str):
                type_ = self._importer.type(value)
                if number in self._rank_less:
                    type_ = TensorType(type_.dtype, type_.shape[1:])
                inner.values[own.name] = found.add_input(own.name, type_)
            else:
                inner.values[own.name] = value
        inner.around = self._importer.source
        found.outputs = [_output(inner, one) for one in import_nodes(inner, module)]
        return found

    def read_operands(self, graphs: Collection[Graph], num_kept: int) -> list[str]:
        """Return the operands that some function reads, and drop the inputs of the others.

        Parameters
        ----------
        graphs : collection of Graph
        num_kept : int
            How many of the first stay, read or not.
        """
        read = set(range(num_kept))
        for graph in graphs:
            graph.without_unused()
            names = {name for node in graph.nodes for name in node.tensors} | set(graph.outputs)
            read.update(number for number, name in enumerate(graph.inputs) if name in names)
        for graph in graphs:
            graph.inputs = {n: t for number, (n, t) in enumerate(graph.inputs.items()) if number in read}
            graph.without_unused()
        return [one for number, one in enumerate(self.operands) if number in read]


def _value(importer: Importer, argument: Any) -> Any:
    """Return what a function reads: the name of a tensor, a number, or a size."""
    found = importer.values[argument.name] if hasattr(argument, "op") else argument
    if found is None or isinstance(found, str | int | float | Extent):
        return found
    raise GraphError(f"given {type(found).__name__}; allowed: tensors and numbers")


def _output(importer: Importer, value: Any) -> str:
    found = importer.value(value)
    if not isinstance(found, str):
        raise GraphError(f"a function that returns {found!r}; allowed: tensors")
    return found


def _carried(importer: Importer, arguments: Sequence[Any]) -> int:
    for one in arguments:
        if not isinstance(_value(importer, one), str):
            raise GraphError(f"carries {one}; allowed: tensors, as torch.zeros((), dtype=torch.int64)")
    return len(arguments)


def _cond(m: Importer, node: Any, import_nodes: ImportNodes) -> tuple[str, ...]:
    predicate, first, second, arguments = node.args
    fake = predicate.meta.get("val") if hasattr(predicate, "meta") else None
    of_sizes = type(fake).__name__ == "SymBool" and m.values[predicate.name] is None
    truth = truth_of(m, fake) if of_sizes else m.tensor(predicate)
    truth = m.reshape(m.cast(truth, "bool"), ())
    functions = _Functions(m, node, arguments)
    graphs = {
        word: functions.graph(one, word, import_nodes) for word, one in (("then", first), ("else", second))
    }
    return m.results("cond", truth, *functions.read_operands(graphs.values(), 0), **graphs)


def _while_loop(m: Importer, node: Any, import_nodes: ImportNodes) -> tuple[str, ...]:
    condition, body, carried, more = node.args
    functions = _Functions(m, node, [*carried, *more])
    number = _carried(m, carried)
    graphs = {
        word: functions.graph(one, word, import_nodes)
        for word, one in (("condition", condition), ("body", body))
    }
    holds = graphs["condition"]
    inner = Importer(holds, m.symbols)
    holds.outputs = [inner.reshape(one, ()) for one in holds.outputs]
    operands = functions.read_operands(graphs.values(), number)
    return m.results("while_loop", *operands, carried=number, **graphs)


def _scan(m: Importer, node: Any, import_nodes: ImportNodes) -> tuple[str, ...]:
    body, carried, each, more = node.args
    return _scanned(m, node, import_nodes, _carried(m, carried), (body, [*carried, *each, *more], len(each)))


def _map(m: Importer, node: Any, import_nodes: ImportNodes) -> tuple[str, ...]:
    body, each, more = node.args
    return _scanned(m, node, import_nodes, 0, (body, [*each, *more], len(each)))


def _scanned(
    m: Importer, node: Any, import_nodes: ImportNodes, carried: int, rest: tuple[Any, list[Any], int]
) -> tuple[str, ...]:
    body, arguments, each = rest
    functions = _Functions(m, node, arguments, range(carried, carried + each))
    graph = functions.graph(body, "body", import_nodes)
    operands = functions.read_operands([graph], carried + each)
    return m.results("scan", *operands, carried=carried, each=each, body=graph)


FLOW: Mapping[str, FlowRule] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}


def check_results(importer: Importer, names: Sequence[str], fakes: Sequence[Any]) -> None:
    """Compare the dtypes and ranks of results with PyTorch's."""
    for name, fake in zip(names, fakes, strict=True):
        own = importer.graph.types[name]
        if own.dtype != dtype_name(fake.dtype) or own.rank != len(fake.shape):
            raise GraphError(f"gives {own}, where PyTorch has {fake.dtype}{list(fake.shape)}")
