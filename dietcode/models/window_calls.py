"""Convolutions and poolings as specs have them, with channels last.

A convolution of the graph has channels first; it stands between transposes, which `dietcode.models.rewriting`
put there. The input is read before the first of them, and the result is that of the second one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.graph.extent import Extent, product_of
from dietcode.graph.graph import Graph, Node
from dietcode.models.dense_calls import epilogue_step
from dietcode.models.kernel_call import Argument, KernelCall

TO_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1)}
_SPATIAL = {3: "w", 4: "hw"}
_WINDOW = {3: "s", 4: "rs"}


def folded_transpose(
    graph: Graph, node: Node, consumers: Mapping[str, Sequence[Node]], axes: Mapping[int, tuple[int, ...]]
) -> list[Node]:
    """Return a node, and the transpose of its result where that alone reads it and puts channels last."""
    readers = consumers[node.result]
    wanted = axes.get(graph.types[node.result].rank)
    if len(readers) != 1 or node.result in graph.outputs or readers[0].operator != "transpose":
        return [node]
    return [node, readers[0]] if readers[0].attributes["axes"] == wanted else [node]


def _channels_last(graph: Graph, nodes: Sequence[Node]) -> str | None:
    """Return the input, channels last, of nodes that begin with a window and a transpose; or None."""
    if len(nodes) < 2 or nodes[1].operator != "transpose":
        return None
    producers = graph.producers()
    before = producers.get(str(nodes[0].operands[0]))
    rank = graph.types[nodes[0].result].rank
    back = (0, rank - 1, *range(1, rank - 1))
    if before is None or before.operator != "transpose" or before.attributes["axes"] != back:
        return None
    return str(before.operands[0])


def convolution_call(graph: Graph, nodes: Sequence[Node]) -> KernelCall | None:
    """Return the call of a convolution, its transpose and the functions that follow; None for others."""
    conv = nodes[0]
    x = _channels_last(graph, nodes)
    if x is None:
        return None
    rank = graph.types[x].rank
    weights = graph.types[str(conv.operands[1])].shape
    groups = conv.attributes["groups"]
    inner = "c" if groups == 1 else "i"
    data, kernel = f"n{_SPATIAL[rank]}c", f"o{inner}{_WINDOW[rank]}"
    dims = dict(zip(data, graph.types[x].shape, strict=True))
    dims |= dict(zip(kernel, weights, strict=True))
    out = graph.types[nodes[1].result].shape
    arguments = {"X": Argument(x, graph.types[x].shape), "W": Argument(str(conv.operands[1]), weights)}
    epilogue: list[Any] = []
    if len(conv.operands) > 2:
        epilogue.append("bias")
        arguments["bias"] = Argument(str(conv.operands[2]), weights[:1])
    current = nodes[1].result
    for node in nodes[2:]:
        step = epilogue_step(graph, node, current, arguments, out)
        if step is None:
            return None
        epilogue.append(step)
        current = node.result
    op = {**_options(conv, rank, groups), "epilogue": epilogue}
    tensors: dict[str, dict[str, Any]] = {
        "X": {"dims": data, "dtype": "float32"},
        "W": {"dims": kernel, "dtype": "float32", "constant": True},
    }
    flops = product_of([*out, *weights[1:]]) * 2
    return KernelCall(op, tensors, dims, arguments, [Argument(current, out)], flops)


def _options(conv: Node, rank: int, groups: int) -> dict[str, Any]:
    strides, dilation, pads = (conv.attributes[key] for key in ("strides", "dilation", "pads"))
    if rank == 3:
        options = {"stride": strides[0], "dilation": dilation[0], "padding": list(pads[0])}
        return {"conv1d": {**options, "groups": groups, "data_layout": "NWC", "kernel_layout": "OIW"}}
    options = {"strides": list(strides), "dilation": list(dilation), "padding": [*pads[0], *pads[1]]}
    return {"conv2d": {**options, "groups": groups, "data_layout": "NHWC", "kernel_layout": "OIHW"}}


def pooling_call(graph: Graph, nodes: Sequence[Node]) -> KernelCall | None:
    """Return the call of a pooling and its transpose; None where there is no block for it."""
    pool = nodes[0]
    x = _channels_last(graph, nodes)
    dilated = any(one != 1 for one in pool.attributes["dilation"])
    flat = len(pool.attributes["window"]) != 2  # blocks pool over two axes
    if x is None or len(nodes) != 2 or dilated or flat or pool.attributes["ceil"]:
        return None
    pads = pool.attributes["pads"]
    node: dict[str, Any] = {
        "maxpool" if pool.operator == "max_pool" else "avgpool": "X",
        "dims": "npqc",
        "window": list(pool.attributes["window"]),
        "strides": list(pool.attributes["strides"]),
        "padding": [*pads[0], *pads[1]],
    }
    if pool.operator == "avg_pool":
        node["count_include_pad"] = pool.attributes["count_pads"]
    dims: dict[str, Extent] = dict(zip("nhwc", graph.types[x].shape, strict=True))
    out = graph.types[nodes[1].result].shape
    block = {"version": 1, "graph": {"Y": node}, "outputs": ["Y"]}
    tensors: dict[str, dict[str, Any]] = {"X": {"dims": "nhwc", "dtype": "float32"}}
    flops = product_of(out) * product_of([Extent.of(one) for one in pool.attributes["window"]])
    arguments = {"X": Argument(x, graph.types[x].shape)}
    return KernelCall({"block": block}, tensors, dims, arguments, [Argument(nodes[1].result, out)], flops)
