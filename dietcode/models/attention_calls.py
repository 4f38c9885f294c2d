"""Attention as one block: transposes, repeated heads and masks are read as they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.graph.extent import ONE, Extent, product_of
from dietcode.graph.graph import Graph, Node
from dietcode.models.kernel_call import Argument, KernelCall

_BATCH = "btuvw"
_MAX_RANK = 6


def through_transposes(graph: Graph, producers: Mapping[str, Node], name: str) -> tuple[str, list[int]]:
    """Return the value that a value is a transpose of, and its axis for each axis of the value."""
    axes = list(range(graph.types[name].rank))
    while name in producers and producers[name].operator == "transpose":
        node = producers[name]
        axes = [node.attributes["axes"][axis] for axis in axes]
        name = str(node.operands[0])
    return name, axes


def _repeated_heads(graph: Graph, producers: Mapping[str, Node], name: str) -> str | None:
    """Return the value [b, g, 1, s, d] whose heads a value repeats, or None."""
    node = producers.get(name)
    if node is None or node.operator != "reshape":
        return None
    wide = producers.get(str(node.operands[0]))
    if wide is None or wide.operator != "expand":
        return None
    inner = str(wide.operands[0])
    own, expanded, flat = graph.types[inner].shape, wide.attributes["shape"], node.attributes["shape"]
    if len(own) != 5 or own[2] != ONE or (*own[:2], *own[3:]) != (*expanded[:2], *expanded[3:]):
        return None
    return inner if flat == (own[0], own[1] * expanded[2], *own[3:]) else None


def folded_attention(graph: Graph, node: Node, consumers: Mapping[str, Sequence[Node]]) -> list[Node]:
    """Return the nodes that the block of an attention computes: a transpose of the result goes with it."""
    readers = consumers[node.result]
    alone = len(readers) == 1 and node.result not in graph.outputs
    if (
        alone
        and readers[0].operator == "transpose"
        and readers[0].attributes["axes"][-1] == (graph.types[node.result].rank - 1)
    ):
        return [node, readers[0]]
    return [node]


def attention_call(graph: Graph, node: Node, nodes: Sequence[Node]) -> KernelCall | None:
    """Return the call that computes an attention; None where there is no block for it.

    Parameters
    ----------
    nodes : sequence of Node
        The attention, and the transpose of its result where that goes with it.
    """
    producers = graph.producers()
    query, key, value = (str(one) for one in node.operands[:3])
    mask = node.operands[3] if len(node.operands) > 3 else None
    rank = graph.types[query].rank
    causal = node.attributes["causal"]
    length, keys = graph.types[query].shape[-2], graph.types[key].shape[-2]
    if not 3 <= rank < _MAX_RANK or (causal == "first" and length != keys):
        return None
    if rank == 4:
        pair = [_repeated_heads(graph, producers, one) for one in (key, value)]
        groups = _grouped(graph, query, key, value, pair)
    else:
        groups = None
    batch = [*_BATCH[: rank - 3], "h"]
    extents = dict(zip([*batch, "q", "d"], graph.types[query].shape, strict=True))
    extents |= {"s": keys, "e": graph.types[value].shape[-1]}
    width = "d" if extents["e"] == extents["d"] else "e"
    split = {"h": "h"}
    if groups is not None:
        (key, value), num_groups = groups[0], groups[1]
        extents |= {"g": num_groups, "r": Extent.of(extents["h"].constant // num_groups.constant)}
        split = {"h": "gr"}
    builder = _Letters(graph, producers, extents, split)
    tensors: dict[str, dict[str, Any]] = {}
    arguments: dict[str, Argument] = {}
    kept = "g" if groups is not None else "h"
    wanted = [("Q", query, [*batch, "q", "d"]), ("K", key, [*batch[:-1], kept, "s", "d"])]
    wanted.append(("V", value, [*batch[:-1], kept, "s", width]))
    if isinstance(mask, str):
        wanted.append(("M", mask, [*batch, "q", "s"]))
    for name, one, letters in wanted:
        found = builder.argument(one, letters, transposed=name != "M")
        if found is None:
            return None
        arguments[name], dims = found
        tensors[name] = {"dims": dims, "dtype": "float32"}
    scores = builder.text([*batch, "q", "s"])
    softmax: dict[str, Any] = {"softmax": ["S", *(["M"] if "M" in tensors else [])], "axis": "s"}
    softmax["scale"] = node.attributes["scale"]
    softmax |= {"causal": "q"} if causal != "none" else {}
    softmax |= {"masked_rows": "nan"} if node.attributes["masked_rows"] == "nan" else {}
    result = [*batch, "q", width]
    if len(nodes) > 1:
        result = [result[axis] for axis in nodes[1].attributes["axes"]]
    output = builder.text(result)
    body = {
        "S": {"einsum": ["Q", "K"], "dims": scores},
        "P": softmax,
        "O": {"einsum": ["P", "V"], "dims": output},
    }
    used = {letter for tensor in tensors.values() for letter in tensor["dims"]}
    own = {letter: extent for letter, extent in extents.items() if letter in used}
    flops = product_of([extents[one] for one in (*batch, "q", "s")]) * (extents["d"] + extents["e"]) * 2
    results = [Argument(nodes[-1].result, tuple(extents[letter] for letter in output))]
    block = {"version": 1, "graph": body, "outputs": ["O"]}
    return KernelCall({"block": block}, tensors, own, arguments, results, flops)


def _grouped(
    graph: Graph, query: str, key: str, value: str, pair: Sequence[str | None]
) -> tuple[tuple[str, str], Extent] | None:
    """Return keys and values of groups of heads with the number of groups, where heads share them."""
    heads = graph.types[query].shape[1]
    if pair[0] is not None and pair[1] is not None and heads.is_constant:
        groups = graph.types[pair[0]].shape[1]
        return ((pair[0], pair[1]), groups) if groups.is_constant else None
    groups = graph.types[key].shape[1]
    both = heads.is_constant and groups.is_constant
    if both and groups != heads and groups == graph.types[value].shape[1] and groups != ONE:
        return (key, value), groups
    return None


class _Letters:
    """Indices of the tensors of an attention."""

    def __init__(
        self,
        graph: Graph,
        producers: Mapping[str, Node],
        extents: Mapping[str, Extent],
        split: Mapping[str, str],
    ) -> None:
        self._graph, self._producers, self._extents, self._split = graph, producers, extents, split

    def text(self, letters: Sequence[str]) -> str:
        """Return indices, heads taken apart where they are shared."""
        return "".join(self._split.get(letter, letter) for letter in letters)

    def argument(self, name: str, letters: Sequence[str], transposed: bool) -> tuple[Argument, str] | None:
        """Return a tensor and its indices; axes that it broadcasts along are left out."""
        shape = self._graph.types[name].shape
        if len(shape) == len(letters) + 1:  # [b, g, 1, s, d] of repeated heads
            letters = [*letters[:2], "", *letters[2:]]
        padded = letters[len(letters) - len(shape) :]
        known = []
        for letter, extent in zip(padded, shape, strict=True):
            whole = self._extents[letter] if letter else ONE
            if extent == whole and letter:
                known.append(letter)
            elif extent == ONE:
                known.append("")
            else:
                return None
        base, axes = through_transposes(self._graph, self._producers, name) if transposed else (name, None)
        order = range(len(shape)) if axes is None else [axes.index(axis) for axis in range(len(shape))]
        text = self.text([known[position] for position in order])
        return Argument(base, tuple(self._extents[letter] for letter in text)), text
