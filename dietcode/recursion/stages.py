"""Which nodes of a graph of rows one kernel computes, and in which order kernels run.

A product reads its rows from memory: where they are computed, another kernel does that first, in an earlier
stage. Rows of tables are read where they lie, by any kernel, and functions of elements go with what they
read; they move to a later stage where no more values then go from one to the other. A stage is one kernel, or
a few where the format of blocks does not take it as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from dietcode.errors import ModelError
from dietcode.graph.graph import Graph, Node
from dietcode.graph.tensor_type import INTEGERS
from dietcode.models.block_builder import ALONG_ROW, block_call, is_product, outputs_of
from dietcode.models.grouping import constants_of, is_valid
from dietcode.models.importing.refusals import listed
from dietcode.models.kernel_call import KernelCall
from dietcode.models.product_calls import product_call
from dietcode.models.units import Unit
from dietcode.recursion.kinds import COMPUTED
from dietcode.recursion.moving import is_move
from dietcode.recursion.plainer import plainer_form
from dietcode.workload.parse import spec_from_data
from dietcode.workload.products import plan_products

_MAX_ROUNDS = 8
MAX_ACCUMULATORS = 12  # sets of them: more do not fit the registers


def units_in_order(graph: Graph, word: str, is_copied: bool = False) -> tuple[Graph, list[Unit]]:
    """Return the calls and moves that compute a graph, in order, and the graph as they compute it.

    Nodes that no kernel takes get plainer forms (`dietcode.recursion.plainer`) until all are taken.

    Parameters
    ----------
    graph : Graph
    word : str
        What the graph is of, for messages.
    is_copied : bool
        Whether rows of tables are moves, though kernels could read them where they lie.

    Raises
    ------
    ModelError
        No kernel computes some nodes; all are named.
    """
    moved: frozenset[str] = frozenset()
    if is_copied:
        moved = frozenset(node.result for node in graph.nodes if node.operator == "take")
    refused: list[Node] = []
    for _ in range(_MAX_ROUNDS):
        staging = _Staging(graph, moved)
        units = staging.run()
        if not staging.refused:
            return graph, units
        refused = list(staging.refused.values())
        plainer = plainer_form(graph, refused, moved)
        if plainer is None:
            break
        graph, moved = plainer
    problems = [_refusal(graph, node) for node in refused]
    advice = "use other operators, or say the model with dietcode.program"
    raise ModelError(f"{word} {listed(list(dict.fromkeys(problems)))}; {advice}")


def _refusal(graph: Graph, node: Node) -> str:
    where = f" ({node.source})" if node.source else ""
    shapes = ", ".join(str(graph.types[one]) for one in node.tensors)
    if any(graph.types[one].dtype in INTEGERS for one in node.tensors if one in graph.inputs):
        why = "a node's number is a position of tables alone; look up a weight, or give it in a float32 x"
        return f"{node.operator} of {shapes}: {why}{where}"
    return f"{node.operator} of {shapes or 'nothing'}: no kernel computes it{where}"


@dataclass
class _Stage:
    """What is computed together.

    Attributes
    ----------
    alone : list of Node
        Views, and nodes with a call of their own; these come first.
    nodes : list of Node
        Of a block.
    """

    alone: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


class _Staging:
    """One way to compute a graph.

    Parameters
    ----------
    graph : Graph
    moved : set of str
        The slices and rows of tables that are moved, and no kernel reads where they lie.

    Attributes
    ----------
    refused : dict of str to Node
        What no kernel computes, by its result.
    """

    def __init__(self, graph: Graph, moved: AbstractSet[str]) -> None:
        self._graph, self._moved = graph, moved
        self._constants = constants_of(graph)
        self._consumers = graph.consumers()
        self._producers = graph.producers()
        self._nodes = [node for node in graph.nodes if node.result not in self._constants]
        self._taken = {node.result for node in self._nodes if self._is_table_read(node)}
        self._stage: dict[str, int] = {}
        self.refused: dict[str, Node] = {}

    def _is_table_read(self, node: Node) -> bool:
        known = self._constants | set(self._graph.inputs)
        if node.result in self._moved:
            return False
        return node.operator == "take" and node.attributes["axis"] == 0 and known.issuperset(node.tensors)

    def _is_block(self, node: Node) -> bool:
        """Whether a node goes into a block with what it reads."""
        if node.operator == "slice":
            return node.result not in self._moved
        return node.operator in COMPUTED | ALONG_ROW or is_product(node, self._graph, self._constants)

    def run(self) -> list[Unit]:
        for node in self._nodes:
            if node.result not in self._taken:
                self._stage[node.result] = self._earliest(node)
        self._sink()
        stages: dict[int, _Stage] = {}
        for node in self._nodes:
            if node.result in self._stage:
                own = stages.setdefault(self._stage[node.result], _Stage())
                (own.nodes if self._is_block(node) else own.alone).append(node)
        units: list[Unit] = []
        copied: set[str] = set()
        for number in sorted(stages):
            units += self._of_stage(stages[number], copied)
        return units

    def _in_memory(self, name: str) -> int:
        """Return the stage from which on a value is read from memory."""
        node = self._producers.get(name)
        if name not in self._stage or node is None:
            return 0
        return self._stage[name] + (1 if self._is_block(node) else 0)

    def _earliest(self, node: Node) -> int:
        if not self._is_block(node):
            return max((self._in_memory(one) for one in node.tensors), default=0)
        if is_product(node, self._graph, self._constants):
            return self._in_memory(str(node.operands[0]))
        return max((self._stage.get(one, 0) for one in node.tensors), default=0)

    def _sink(self) -> None:
        """Move functions of elements to later stages that alone read them."""
        for node in reversed(self._nodes):
            readers = self._consumers[node.result]
            if node.operator not in COMPUTED or not readers or node.result not in self._stage:
                continue
            now = self._stage[node.result]
            later = min(self._stage.get(one.result, now) for one in readers)
            if later <= now:
                continue
            if any(
                not self._is_block(one) or is_product(one, self._graph, self._constants) for one in readers
            ):
                continue
            crossing = {one for one in node.tensors if one in self._stage and self._stage[one] < later}
            known = {
                one
                for one in crossing
                if any(
                    self._stage.get(reader.result, 0) >= later
                    for reader in self._consumers[one]
                    if reader is not node
                )
            }
            if len(crossing - known) <= 1:
                self._stage[node.result] = later

    def _of_stage(self, stage: _Stage, copied: set[str]) -> list[Unit]:
        units: list[Unit] = []
        for node in stage.alone:
            readers = self._consumers[node.result]
            if node.operator == "transpose" and readers and all(one.operator == "matmul" for one in readers):
                continue  # products of two computed matrices read through it
            if node.operator == "reshape":
                units += self._copies(node, copied)
                units.append(Unit([node]))
                continue
            if is_move(node, self._graph):
                units.append(Unit([node]))
                continue
            call = product_call(self._graph, node) if node.operator == "matmul" else None
            if call is None or not is_valid(call, self._graph):
                self._refuse(node)
                continue
            units += self._copies(node, copied)
            units.append(Unit([node], call))
        return units + self._blocks(self._contiguous(stage.nodes))

    def _copies(self, node: Node, copied: set[str]) -> list[Unit]:
        """Return calls that copy the rows of tables which a node reads, since it takes them from memory."""
        units = []
        for name in node.tensors:
            for one in self._through_transposes(name):
                if one in self._taken and one not in copied:
                    copied.add(one)
                    call = self._call([self._producers[one]], [one])
                    if call is None:
                        self._refuse(self._producers[one])
                    else:
                        units.append(Unit([self._producers[one]], call))
        return units

    def _through_transposes(self, name: str) -> Iterable[str]:
        yield name
        node = self._producers.get(name)
        if node is not None and node.operator == "transpose":
            yield from self._through_transposes(str(node.operands[0]))

    def _contiguous(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes of a stage with those next to each other that belong together."""
        own = {node.result: node for node in nodes}
        order: dict[str, Node] = {}

        def visit(node: Node) -> None:
            if node.result in order:
                return
            for name in node.tensors:
                if name in own:
                    visit(own[name])
            order[node.result] = node

        read = {name for node in nodes for name in node.tensors}
        for node in [*(one for one in nodes if one.result not in read), *nodes]:
            visit(node)
        return list(order.values())

    def _blocks(self, nodes: list[Node]) -> list[Unit]:
        """Return as few blocks as nodes can be."""
        units: list[Unit] = []
        start = 0
        while start < len(nodes):
            for stop in range(len(nodes), start, -1):
                own = nodes[start:stop]
                call = self._call(own, outputs_of(own, self._consumers, self._graph.outputs))
                if call is not None:
                    units.append(Unit(own, call))
                    start = stop
                    break
            else:
                self._refuse(nodes[start])
                start += 1
        return units

    def _call(self, nodes: Sequence[Node], outputs: Sequence[str]) -> KernelCall | None:
        """Return the call of a block, with the rows of tables that it reads; None where it is none."""
        if any(self._graph.types[one].dtype != "float32" for node in nodes for one in node.results):
            return None
        inside = {node.result for node in nodes}
        for node in nodes:
            if is_product(node, self._graph, self._constants) and node.operands[0] in inside - self._taken:
                return None
        read = dict.fromkeys(name for node in nodes for name in node.tensors if name in self._taken)
        reads = [self._producers[name] for name in read if name not in inside]
        call = block_call(self._graph, [*reads, *nodes], self._constants, outputs)
        if call is None or not is_valid(call, self._graph):
            return None
        return call if _num_accumulators(call, self._graph) <= MAX_ACCUMULATORS else None

    def _refuse(self, node: Node) -> None:
        self.refused[node.result] = node


def _num_accumulators(call: KernelCall, graph: Graph) -> int:
    """Return how many sets of accumulators a block has; products that are only added up share one."""
    if not any("einsum" in node for node in call.op["block"]["graph"].values()):
        return 0
    own = spec_from_data({"name": "part", **call.spec(graph.ranges)}).block
    assert own is not None  # it has a product
    return len(plan_products(own.nodes, own.indices, own.outputs, own.columns).accumulators)
