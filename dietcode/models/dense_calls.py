"""One product with a constant matrix and an epilogue, as the einsum that a spec has for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dietcode.graph.extent import Extent, product_of
from dietcode.graph.graph import Graph, Node
from dietcode.models.block_builder import is_product
from dietcode.models.kernel_call import Argument, KernelCall

_PLAIN = ("relu", "silu", "tanh", "sigmoid")


def dense_call(
    graph: Graph, nodes: Sequence[Node], constants: Iterable[str], outputs: Sequence[str]
) -> KernelCall | None:
    """Return the call of an einsum that computes nodes; None where no epilogue says the same."""
    constants = set(constants)
    first, *rest = nodes
    if not is_product(first, graph, constants) or list(outputs) != [nodes[-1].result]:
        return None
    x, w = first.tensors[:2]
    shape = graph.types[first.result].shape
    rows, columns, depth = product_of(shape[:-1]), shape[-1], graph.types[x].shape[-1]
    if len(shape) < 2:
        return None
    operand = "nk" if first.operator == "linear" else "kn"
    tensors: dict[str, dict[str, Any]] = {
        "X": {"dims": "mk", "dtype": "float32"},
        "W": {"dims": operand, "dtype": "float32", "constant": True},
    }
    arguments = {"X": Argument(x, (rows, depth)), "W": Argument(w, graph.types[w].shape)}
    epilogue: list[Any] = []
    for bias in first.tensors[2:]:
        epilogue.append("bias")
        arguments["bias"] = Argument(bias, (columns,))
    current = first.result
    for node in rest:
        vector = None if epilogue else _bias(graph, node, current, columns)
        if vector is not None:
            epilogue.append("bias")
            arguments["bias"] = Argument(vector, (columns,))
            current = node.result
            continue
        step = epilogue_step(graph, node, current, arguments, (rows, columns))
        if step is None:
            return None
        epilogue.append(step)
        current = node.result
    dims = {"m": rows, "n": columns, "k": depth}
    results = [Argument(current, (rows, columns))]
    op: dict[str, Any] = {"einsum": f"mk,{operand}->mn", "epilogue": epilogue}
    return KernelCall(op, tensors, dims, arguments, results, rows * columns * depth * 2)


def _bias(graph: Graph, node: Node, current: str, columns: Extent) -> str | None:
    """Return the vector that a node adds to a product, or None."""
    others = [one for one in node.tensors if one != current]
    if node.operator != "add" or len(others) != 1 or graph.types[others[0]].shape != (columns,):
        return None
    return others[0]


def epilogue_step(
    graph: Graph, node: Node, current: str, arguments: dict[str, Argument], shape: tuple[Extent, ...]
) -> Any:
    """Return the step of an epilogue that a node is, or None; a residual is added to the arguments."""
    if node.operator in _PLAIN:
        return node.operator
    if node.operator == "gelu":
        return {"gelu": node.attributes["form"]}
    if node.operator == "clip":
        bounds = [node.attributes["low"], node.attributes["high"]]
        return None if None in bounds else {"clip": [float(one) for one in bounds]}
    others = [one for one in node.operands if one != current]
    other = others[0] if len(others) == 1 and len(node.operands) == 2 else None
    if node.operator == "mul" and isinstance(other, int | float):
        return {"scale": float(other)}
    alike = isinstance(other, str) and graph.types[other].shape == graph.types[node.result].shape
    if node.operator == "add" and isinstance(other, str) and alike:
        name = f"R{len(arguments)}"
        arguments[name] = Argument(other, shape)
        return {"residual": name}
    return None
