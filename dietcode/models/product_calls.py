"""Products of two computed matrices, or of batches of them, as einsums; transposes are read as they lie."""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent, product_of
from dietcode.graph.graph import Graph, Node
from dietcode.models.attention_calls import through_transposes
from dietcode.models.kernel_call import Argument, KernelCall

_BATCH = "btuv"


def product_call(graph: Graph, node: Node) -> KernelCall | None:
    """Return the call of a product; None for vectors, and for more batch axes than an einsum has."""
    shape = graph.types[node.result].shape
    first, second = (str(one) for one in node.operands)
    ranks = [graph.types[one].rank for one in (first, second)]
    if min(ranks) < 2 or len(shape) - 2 > len(_BATCH):
        return None
    batch = _BATCH[: len(shape) - 2]
    extents: dict[str, Extent] = dict(zip([*batch, "m", "n"], shape, strict=True))
    extents["k"] = graph.types[first].shape[-1]
    producers = graph.producers()
    arguments, dims = {}, {}
    for name, value, letters in (("A", first, f"{batch}mk"), ("B", second, f"{batch}kn")):
        own = graph.types[value].shape
        padded = letters[len(letters) - len(own) :]
        known = [
            letter if extent == extents[letter] and (extent != ONE or letter in "mnk") else ""
            for letter, extent in zip(padded, own, strict=True)
        ]
        base, axes = through_transposes(graph, producers, value)
        text = "".join(known[axes.index(axis)] for axis in range(len(own)))
        arguments[name], dims[name] = Argument(base, tuple(extents[letter] for letter in text)), text
    used = set(dims["A"] + dims["B"])
    output = "".join(letter for letter in f"{batch}mn" if letter in used)
    op = {"einsum": f"{dims['A']},{dims['B']}->{output}", "epilogue": []}
    tensors = {name: {"dims": text, "dtype": "float32"} for name, text in dims.items()}
    results = [Argument(node.result, tuple(extents[letter] for letter in output))]
    flops = product_of([*shape, extents["k"]]) * 2
    return KernelCall(op, tensors, {i: extents[i] for i in extents if i in used}, arguments, results, flops)
