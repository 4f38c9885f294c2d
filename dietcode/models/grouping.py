"""From a graph to blocks: which nodes one call computes.

Products with constant matrices begin a block and take in what follows them, functions of elements and norms
along the rows, and other products over the same rows that these join. What is left of norms, reductions and
functions of elements becomes blocks of rows. Whether nodes go together is asked of the format of blocks
itself: a spec that `dietcode.workload` refuses is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dietcode.errors import SpecError
from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph, Node
from dietcode.models.attention_calls import attention_call, folded_attention
from dietcode.models.block_builder import (
    ALONG_ROW,
    MOVING,
    POINTWISE,
    block_call,
    is_product,
    outputs_of,
)
from dietcode.models.dense_calls import dense_call
from dietcode.models.kernel_call import KernelCall
from dietcode.models.product_calls import product_call
from dietcode.models.recurrent_calls import recurrence_call
from dietcode.models.reduction_calls import REDUCTIONS, folded_functions, reduction_call
from dietcode.models.units import HOST_ELEMENTS, Unit, Units
from dietcode.models.window_calls import TO_LAST, convolution_call, folded_transpose, pooling_call
from dietcode.workload.parse import spec_from_data

_MAX_PRODUCTS = 4  # accumulators of more do not fit the registers
_MAX_NODES = 24


def constants_of(graph: Graph) -> set[str]:
    """Return the values that follow from weights alone; they are computed once, when a model is loaded."""
    known = set(graph.weights)
    for node in graph.nodes:
        if known.issuperset(node.tensors) and not node.graphs and not _depends_on_dimensions(graph, node):
            known.update(node.results)
    return known


def _depends_on_dimensions(graph: Graph, node: Node) -> bool:
    extents = [extent for result in node.results for extent in graph.types[result].shape]
    for value in node.attributes.values():
        extents += [
            one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, Extent)
        ]
    return not all(extent.is_constant for extent in extents)


def make_units(graph: Graph) -> Units:
    """Return the partition of a graph into calls of kernels, and nodes for the host."""
    return _Grouping(graph).run()


class _Grouping:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._constants = constants_of(graph)
        self._units = Units.singles(graph)
        self._consumers = graph.consumers()

    def run(self) -> Units:
        for operators, take in (
            (("attention",), self._attention),
            (("recurrence",), self._recurrence),
            (("linear", "matmul"), self._grow),
            (("conv", "max_pool", "avg_pool"), self._windowed),
            (("matmul",), self._product),
            (REDUCTIONS, self._reduction),
            (ALONG_ROW, self._grow_rows),
            (MOVING, self._grow_rows),
            (POINTWISE, self._grow_rows),
        ):
            for node in self._graph.nodes:
                if node.operator in operators and self._is_open(node) and self._is_float32(node):
                    take(node)
        return self._units

    def _is_float32(self, node: Node) -> bool:
        """Whether kernels may compute a node."""
        names = (node.result, *(n for n in node.tensors if node.operator != "take"))
        return all(self._graph.types[name].dtype == "float32" for name in names)

    def _is_open(self, node: Node) -> bool:
        unit = self._units.unit_of(node.result)
        return unit is not None and unit.call is None and node.result not in self._constants

    def _product(self, node: Node) -> None:
        unit, call = self._units.of_value[node.result], product_call(self._graph, node)
        if call is not None and is_valid(call, self._graph):
            unit.call = call

    def _reduction(self, node: Node) -> None:
        """Reduce over axes that others follow; what goes along rows is for their blocks."""
        rank = self._graph.types[str(node.operands[0])].rank
        axes = [axis % rank for axis in node.attributes["axes"] or range(rank)]
        if rank - 1 in axes:
            return
        unit = self._grown_rows(node)
        if unit is not None and len(unit.nodes) > 1:
            return
        nodes = folded_functions(self._graph, node, self._consumers)
        if not all(self._is_open(one) and self._is_float32(one) for one in nodes):
            nodes = [node]
        call = reduction_call(self._graph, nodes)
        units = [self._units.of_value[one.result] for one in nodes]
        if call is not None and is_valid(call, self._graph) and self._units.may_join(units):
            self._units.join(units, call)

    def _attention(self, node: Node) -> None:
        nodes = folded_attention(self._graph, node, self._consumers)
        call = attention_call(self._graph, node, nodes)
        units = [self._units.of_value[one.result] for one in nodes]
        if call is not None and is_valid(call, self._graph) and self._units.may_join(units):
            self._units.join(units, call)

    def _recurrence(self, node: Node) -> None:
        repeated = recurrence_call(self._graph, node, self._constants)
        unit = self._units.of_value[node.result]
        if repeated is not None and is_valid(repeated.call, self._graph):
            unit.call, unit.repeated = repeated.call, repeated

    def _windowed(self, node: Node) -> None:
        """Compute a convolution or a pooling with channels last, and what follows a convolution."""
        nodes = folded_transpose(self._graph, node, self._consumers, TO_LAST)
        make = convolution_call if node.operator == "conv" else pooling_call
        call = make(self._graph, nodes)
        units = [self._units.of_value[one.result] for one in nodes]
        if call is None or not is_valid(call, self._graph) or not self._units.may_join(units):
            return
        unit = self._units.join(units, call)
        while node.operator == "conv":
            last = unit.nodes[-1].result
            readers = self._consumers[last]
            if len(readers) != 1 or last in self._graph.outputs or not self._is_open(readers[0]):
                break
            reader = self._units.of_value[readers[0].result]
            call = convolution_call(self._graph, [*unit.nodes, readers[0]])
            if call is None or not is_valid(call, self._graph) or not self._units.may_join([unit, reader]):
                break
            unit = self._units.join([unit, reader], call)

    def _call_of(self, units: Sequence[Unit]) -> KernelCall | None:
        """Return the call that computes units together, or None."""
        nodes = sorted(
            (node for unit in units for node in unit.nodes), key=lambda n: self._units.position[n.result]
        )
        if len(nodes) > _MAX_NODES:
            return None
        outputs = outputs_of(nodes, self._consumers, self._graph.outputs)
        call = block_call(self._graph, nodes, self._constants, outputs)
        return call if call is not None and is_valid(call, self._graph) else None

    def _grow(self, node: Node) -> None:
        """Begin a block with a product, and take in what follows."""
        if not is_product(node, self._graph, self._constants):
            return
        unit = self._units.of_value[node.result]
        unit.call = self._call_of([unit])
        if unit.call is None:
            return
        unit = self._extend(unit, lambda one: one.operator in POINTWISE | ALONG_ROW)
        outputs = outputs_of(unit.nodes, self._consumers, self._graph.outputs)
        dense = dense_call(self._graph, unit.nodes, self._constants, outputs)
        if dense is not None and is_valid(dense, self._graph):
            unit.call = dense

    def _extend(self, unit: Unit, allows: Callable[[Node], bool]) -> Unit:
        """Take in nodes that read what a unit computes, as long as they go together."""
        refused: set[str] = set()
        while True:
            readers = self._readers(unit, refused)
            joined = None
            for reader in readers:
                joined = self._joined(unit, reader) if allows(reader) else None
                if joined is not None:
                    unit = joined
                    break
                refused.add(reader.result)
            if joined is None:
                return unit

    def _readers(self, unit: Unit, refused: Iterable[str]) -> list[Node]:
        found = {
            reader.result: reader
            for node in unit.nodes
            for result in node.results
            for reader in self._consumers[result]
            if self._is_open(reader) and self._is_float32(reader) and reader.result not in refused
        }
        return sorted(found.values(), key=lambda node: self._units.position[node.result])

    def _joined(self, unit: Unit, reader: Node) -> Unit | None:
        """Return the unit with a reader and the products that this needs; None where they do not fit."""
        joining = [unit, self._units.of_value[reader.result]]
        for name in reader.tensors:
            other = self._units.unit_of(name)
            if other is not None and other is not unit and other.call is None:
                chain = self._chain_of_product(name)
                joining += [one for one in chain if all(one is not known for known in joining)]
        num_products = sum(
            is_product(node, self._graph, self._constants) for one in joining for node in one.nodes
        )
        if num_products > _MAX_PRODUCTS or not self._units.may_join(joining):
            return None
        call = self._call_of(joining)
        return None if call is None else self._units.join(joining, call)

    def _chain_of_product(self, name: str) -> list[Unit]:
        """Return the units of a product, and of functions of it up to a value, that nothing else reads."""
        chain: list[Unit] = []
        while True:
            unit = self._units.unit_of(name)
            if unit is None or unit.call is not None or len(self._consumers[name]) != 1:
                return []
            (node,) = unit.nodes
            chain.append(unit)
            if is_product(node, self._graph, self._constants) and self._is_float32(node):
                return chain
            inner = [one for one in node.tensors if one not in self._constants]
            if node.operator not in POINTWISE or len(inner) != 1:
                return []
            name = inner[0]

    def _grow_rows(self, node: Node) -> None:
        self._grown_rows(node)

    def _grown_rows(self, node: Node) -> Unit | None:
        """Begin a block of rows, with the functions that it reads and that read it; None for no block."""
        most = self._graph.types[node.result].num_elements.bounds(self._graph.ranges)[1]
        if node.operator in POINTWISE and most <= HOST_ELEMENTS:
            return None
        unit = self._units.of_value[node.result]
        unit.call = self._call_of([unit])
        if unit.call is None:
            return None
        allowed = POINTWISE | ALONG_ROW
        unit = self._extend(unit, lambda one: one.operator in allowed)
        refused: set[str] = set()
        while True:
            joined = None
            for name in self._units.operands(unit):
                other = self._units.unit_of(name)
                if other is None or other.call is not None or name in refused or name in self._constants:
                    continue
                (producer,) = other.nodes
                alone = all(self._units.of_value[r.result] is unit for r in self._consumers[name])
                kinds = POINTWISE | MOVING | {"take"}
                if (
                    alone
                    and producer.operator in kinds
                    and self._is_float32(producer)
                    and (name not in self._graph.outputs)
                ):
                    call = self._call_of([unit, other]) if self._units.may_join([unit, other]) else None
                    joined = None if call is None else self._units.join([unit, other], call)
                if joined is not None:
                    unit = joined
                    break
                refused.add(name)
            if joined is None:
                return unit


def is_valid(call: KernelCall, graph: Graph) -> bool:
    """Whether the format of specs takes a call, and a kernel can compute it where an axis is empty."""
    if call.sums_nothing(graph.ranges) == "sum":
        return False
    try:
        spec_from_data({"name": "part", **call.spec(graph.ranges)})
    except SpecError:
        return False
    return True
