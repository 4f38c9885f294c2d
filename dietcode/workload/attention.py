"""A block of two products with a softmax between them: which tensor and which index is what.

    S: {einsum: [Q, K], dims: bhqk}
    F: {add: [S, far]}                            # functions of the scores, as many as there are
    H: {hide: [F, lengths], axis: k}              # may be left out
    P: {softmax: [H, mask], axis: k, scale: 0.125, causal: q}
    O: {einsum: [P, V], dims: bhqd}

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from dietcode.errors import SpecError
from dietcode.workload.operators import OPERATORS
from dietcode.workload.text import clip, field_path

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode

MAX_HEAD = 1024
"""Largest extent of what a score is summed over, and of what the result has for each query."""
SOFTMAX_FLOPS = 5
"""Operations of a score: scale, maximum, difference, exponential, sum."""
_GRAPH = ("op", "block", "graph")


@dataclass(frozen=True)
class AttentionPlan:
    """``O[g, r, e] = Σ_k softmax_k(scale · f(Σ_d Q[g, r, d] · K[g, k, d]) + mask) · V[g, k, e]``.

    Attributes
    ----------
    query, key, value : str
        Tensors.
    product, scores : str
        The product of queries and keys, and what the softmax is of: that, or the last of `functions`.
    functions : tuple of str
        Nodes between the two, each after its operands.
    reads : tuple of str
        Tensors that these read.
    mask : str or None
        Tensor that is added to the scores.
    lengths : str or None
        Tensor of how many keys exist; nothing of the others is read.
    groups : str
        Indices that all but the mask have.
    rows : str
        Indices of the queries and the result alone: positions, and heads that share keys.
    keys, depth, width : str
        The index of the softmax; that of a score's sum; the last of the result, which may be `depth`.
    scale : float
        Of the scores.
    causal : str or None
        The index of `rows` whose positions see no later key; the last position sees all.
    masked_rows : str
        ``zero`` or ``nan``: the result of a query that sees no key.
    """

    query: str
    key: str
    value: str
    product: str
    scores: str
    functions: tuple[str, ...]
    reads: tuple[str, ...]
    mask: str | None
    lengths: str | None
    groups: str
    rows: str
    keys: str
    depth: str
    width: str
    scale: float
    causal: str | None
    masked_rows: str

    def inverse(self, total: Any, one: Any, zero: Any, select: Callable[..., Any]) -> Any:
        """Return 1 over the sum of a query's weights: what the sum of weighted values is multiplied with."""
        return one / total if self.masked_rows == "nan" else select(total == zero, zero, one / total)


def is_attention(nodes: Mapping[str, BlockNode]) -> bool:
    """Return whether a product of a graph reads a softmax."""
    softmaxes = {name for name, node in nodes.items() if node.operator == "softmax"}
    return any(node.operator == "einsum" and softmaxes & set(node.operands) for node in nodes.values())


def plan_attention(
    nodes: Mapping[str, BlockNode], indices: Mapping[str, str], outputs: tuple[str, ...]
) -> AttentionPlan:
    """Return what is what in a graph for which `is_attention` holds.

    Parameters
    ----------
    nodes : mapping of str to BlockNode
        Each after its operands.
    indices : mapping of str to str
        Of every tensor and node.

    Raises
    ------
    SpecError
        It is no attention that there is code for, with the path of the field.
    """
    result, weights = next(
        (name, str(operand))
        for name, node in nodes.items()
        for operand in node.operands
        if node.operator == "einsum" and operand in nodes and nodes[str(operand)].operator == "softmax"
    )
    softmax = nodes[weights]
    scores, hiding = str(softmax.operands[0]), tuple[str, ...]()
    if scores in nodes and nodes[scores].operator == "hide":
        scores, hiding = str(nodes[scores].operands[0]), (scores,)
    products = [name for name, node in nodes.items() if node.operator == "einsum" and name != result]
    for name in products:
        _check_tensors(name, nodes, "")
    if len(products) != 1 or scores not in nodes:
        problem = f"given {clip(scores)}; allowed beside a product with the result: an einsum of Q and K"
        raise SpecError(field_path((*_GRAPH, weights, "softmax", 0)), problem)
    (product,) = products
    functions = tuple(name for name in nodes if name not in (product, *hiding, weights, result))
    for name in functions:
        _check_function(name, nodes, (product, *functions))
    if outputs != (result,):
        raise SpecError("op.block.outputs", f"given {clip(outputs)}; allowed: {result} alone")
    own = indices[product]
    if indices[scores] != own:
        given = f"given {clip(scores)}, with the indices {indices[scores]}"
        problem = f"{given}; allowed: {own}, as {product} has"
        raise SpecError(field_path((*_GRAPH, weights, "softmax", 0)), problem)
    inner = dict.fromkeys(hiding, scores) | {weights: (*hiding, scores)[0], result: weights}
    for name, one in inner.items():
        _check_tensors(name, nodes, one)
    plan = _roles(nodes, indices, (product, scores, weights, result), functions)
    for name in hiding:
        own = indices[str(plan.lengths)]
        if nodes[name].attribute("axis") != plan.keys or not set(own) <= set(plan.groups):
            allowed = f"{plan.keys}, with lengths of {plan.groups or 'no index'}, which {plan.key} has too"
            given = f"given {nodes[name].attribute('axis')} and lengths of {own or 'no index'}"
            raise SpecError(field_path((*_GRAPH, name)), f"{given}; allowed: {allowed}")
    return plan


def _check_tensors(name: str, nodes: Mapping[str, BlockNode], inner: str) -> None:
    """Refuse operands that are no tensors, but for the node `inner`, once."""
    operands = nodes[name].operands
    for number, operand in enumerate(operands):
        is_inner = operand == inner and operand not in operands[:number]
        if not is_inner and not _is_tensor(operand, nodes):
            path = field_path((*_GRAPH, name, nodes[name].operator, number))
            raise SpecError(path, f"given {clip(operand)}; allowed: a tensor")


def _check_function(name: str, nodes: Mapping[str, BlockNode], inner: tuple[str, ...]) -> None:
    """Refuse what is no function of each score by itself, of tensors and of numbers."""
    node = nodes[name]
    if not OPERATORS[node.operator].is_pointwise:
        allowed = "functions of the scores, before the softmax, in a block with a product of one"
        raise SpecError(field_path((*_GRAPH, name)), f"given {node.operator}; allowed: {allowed}")
    for number, operand in enumerate(node.operands):
        if operand in nodes and operand not in inner:
            path = field_path((*_GRAPH, name, node.operator, number))
            problem = f"given {clip(operand)}; allowed: scores, tensors or numbers; what follows attention is"
            raise SpecError(path, f"{problem} a block of its own")


def _roles(
    nodes: Mapping[str, BlockNode],
    indices: Mapping[str, str],
    names: tuple[str, str, str, str],
    functions: tuple[str, ...],
) -> AttentionPlan:
    product, scores, weights, result = names
    softmax = nodes[weights]
    keys, own = str(softmax.attribute("axis")), indices[product]
    if len(keys) != 1:
        path = field_path((*_GRAPH, weights, "axis"))
        raise SpecError(path, f"given {clip(keys)}; allowed between two products: one index")
    first, second = (str(operand) for operand in nodes[product].operands)
    query, key = (second, first) if keys in indices[first] else (first, second)
    value = str(next(operand for operand in nodes[result].operands if operand != weights))
    mask = str(softmax.operands[1]) if len(softmax.operands) > 1 else None
    hiding = [node for node in nodes.values() if node.operator == "hide"]
    depth, width = indices[key][-1], indices[value][-1]
    groups = "".join(index for index in own if index in indices[key] and index != keys)
    rows = "".join(index for index in own if index not in indices[key])
    plan = AttentionPlan(
        query=query,
        key=key,
        value=value,
        product=product,
        scores=scores,
        functions=functions,
        reads=tuple(dict.fromkeys(o for n in functions for o in nodes[n].operands if _is_tensor(o, nodes))),
        mask=mask,
        lengths=str(hiding[0].operands[1]) if hiding else None,
        groups=groups,
        rows=rows,
        keys=keys,
        depth=depth,
        width=width,
        scale=float(softmax.attribute("scale")),
        causal=softmax.attribute("causal"),
        masked_rows=softmax.attribute("masked_rows") or "zero",
    )
    wanted = {query: groups + rows, key: groups + keys, value: groups + keys, result: groups + rows}
    for name, last in ((query, depth), (key, depth), (value, width), (result, width)):
        if not rows or set(indices[name]) != {*wanted[name], last} or not indices[name].endswith(last):
            of_result, of_tensor = (*_GRAPH, result, "dims"), ("tensors", name, "dims")
            allowed = f"{wanted[name] or 'an index of the queries'} in any order, then {last}"
            given = f"given {clip(indices[name])} beside scores of {own}"
            path = field_path(of_result if name == result else of_tensor)
            raise SpecError(path, f"{given}; allowed: {allowed}")
    if {depth, width} & set(own):
        problem = f"given {clip(own)}; allowed: indices of Q and K but the last one of each"
        raise SpecError(field_path((*_GRAPH, product, "dims")), problem)
    if plan.causal is not None and plan.causal not in rows:
        allowed = f"an index of the queries alone: {', '.join(rows)}"
        path = field_path((*_GRAPH, weights, "causal"))
        raise SpecError(path, f"given {clip(plan.causal)}; allowed: {allowed}")
    return plan


def _is_tensor(operand: str | float, nodes: Mapping[str, BlockNode]) -> TypeGuard[str]:
    return isinstance(operand, str) and operand not in nodes


def num_scores(plan: AttentionPlan, extents: Mapping[str, Any]) -> Any:
    """Return how many scores `causal` does not hide, as floats.

    Parameters
    ----------
    extents : mapping of str to int or array
        Of every index; arrays give an array.
    """
    count: Any = 1.0
    for index in plan.groups + plan.rows:
        if index != plan.causal:
            count = count * extents[index]
    if plan.causal is None:
        return count * extents[plan.keys]
    queries, keys = extents[plan.causal], extents[plan.keys]
    more = queries > keys  # the first queries see none
    seeing = queries * (1 - more) + keys * more
    return count * (1.0 * seeing * keys - seeing * (seeing - 1.0) / 2)


def attention_flops(plan: AttentionPlan, extents: Mapping[str, Any]) -> Any:
    """Return the operations of all scores that are not hidden, as floats; arguments as of `num_scores`."""
    heads = 2.0 * extents[plan.depth] + 2.0 * extents[plan.width]
    return num_scores(plan, extents) * (heads + SOFTMAX_FLOPS + len(plan.functions))
