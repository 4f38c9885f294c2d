"""A packed block, computed by PyTorch: operator by operator, and attention by its own function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_POINTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda torch, a, b: a + b,
    "sub": lambda torch, a, b: a - b,
    "mul": lambda torch, a, b: a * b,
    "div": lambda torch, a, b: a / b,
    "silu": lambda torch, x: torch.nn.functional.silu(x),
    **{
        name: (lambda torch, x, name=name: getattr(torch, name)(x))
        for name in ("exp", "relu", "sigmoid", "tanh")
    },
}


def _einsum(torch: Any, node: Mapping[str, Any], operands: Sequence[Any], own: Sequence[str]) -> Any:
    """A product; by ``linear`` where it is one."""
    (a, b), (first, second), to = operands, own, node["attributes"]["dims"]
    if second[-1] == first[-1] and len(second) == 2 and to == first[:-1] + second[0]:
        return torch.nn.functional.linear(a, b)
    return torch.einsum(f"{first},{second}->{to}", a, b)


def _softmax(torch: Any, node: Mapping[str, Any], operands: Sequence[Any], own: Sequence[str]) -> Any:
    attributes, whole = node["attributes"], own[0]
    x = operands[0] * attributes["scale"]
    if len(operands) > 1:
        x = x + along(operands[1], own[1], whole)
    if attributes["causal"]:
        axis = whole.index(attributes["causal"])
        queries, keys = x.shape[axis], x.shape[-1]
        seen = torch.ones(queries, keys, dtype=torch.bool, device=x.device).tril(keys - queries)
        x = x.masked_fill(~along(seen, attributes["causal"] + whole[-1], whole), float("-inf"))
    return torch.softmax(x, -1).nan_to_num(0.0)  # a row that is hidden as a whole gives zeros


def _layernorm(torch: Any, node: Mapping[str, Any], operands: Sequence[Any], own: Sequence[str]) -> Any:
    x, *parameters = operands
    shape, eps = x.shape[-len(node["attributes"]["axis"]) :], node["attributes"]["eps"]
    return torch.nn.functional.layer_norm(x, shape, *parameters, eps=eps)


def _rmsnorm(torch: Any, node: Mapping[str, Any], operands: Sequence[Any], own: Sequence[str]) -> Any:
    x, *parameters = operands
    shape, eps = x.shape[-len(node["attributes"]["axis"]) :], node["attributes"]["eps"]
    return torch.nn.functional.rms_norm(x, shape, *parameters, eps=eps)


_WHOLE = {"einsum": _einsum, "softmax": _softmax, "layernorm": _layernorm, "rmsnorm": _rmsnorm}
OPERATORS = (*_WHOLE, *_POINTWISE)
"""Those that a packed block may consist of."""


def along(value: Any, own: str, whole: str) -> Any:
    """A tensor of some of the indices `whole`, in their order, with an axis of extent 1 for each other."""
    return value[tuple(slice(None) if index in own else None for index in whole)]


def block_value(torch: Any, block: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """The output of a block, in the dtype of the tensors.

    Parameters
    ----------
    block : mapping
        As `benchmarks.gpu.pack.block_facts` has it.
    """
    values, indices = dict(given), block["indices"]
    for name, node in block["nodes"].items():
        own = [indices[o] if isinstance(o, str) else "" for o in node["operands"]]
        operands = [values[o] if isinstance(o, str) else o for o in node["operands"]]
        if node["operator"] in _WHOLE:
            values[name] = _WHOLE[node["operator"]](torch, node, operands, own)
            continue
        whole = max(own, key=len)
        broadcast = [along(o, k, whole) if k else o for o, k in zip(operands, own, strict=True)]
        values[name] = _POINTWISE[node["operator"]](torch, *broadcast)
    return values[block["output"]]


def attention_value(torch: Any, block: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """The output of attention by ``scaled_dot_product_attention``, on views of the tensors as they lie.

    Heads that share keys go as its groups. Its own causal mask begins at the first key, so that it is taken
    where there are as many queries as keys; one query alone needs none.
    """
    plan, indices = block["attention"], block["indices"]
    position = plan["causal"] or plan["rows"][-1]
    heads = plan["rows"].replace(position, "")

    def seen_as(name: str, outer: str, inner: str, last: str) -> Any:
        """A tensor as [batch, heads, positions, elements], its indices in this order."""
        tensor, own = given[name], indices[name]
        parts = ("".join(k for k in part if k in own) for part in (outer, inner, last))
        groups, shared, rest = parts
        moved = along(
            tensor.permute([own.index(k) for k in groups + shared + rest]),
            groups + shared + rest,
            outer + inner + last,
        )
        return moved.reshape(*_flat(moved, len(outer), len(inner)), *moved.shape[len(outer + inner) :])

    batch, own_heads = plan["groups"][:1], plan["groups"][1:]
    query = seen_as(plan["query"], batch, own_heads + heads, position + plan["depth"])
    key = seen_as(plan["key"], batch, own_heads, plan["keys"] + plan["depth"])
    value = seen_as(plan["value"], batch, own_heads, plan["keys"] + plan["width"])
    mask, queries, keys = None, query.shape[2], key.shape[2]
    if plan["mask"] is not None:
        mask = seen_as(plan["mask"], batch, own_heads + heads, position + plan["keys"])
    is_causal = bool(plan["causal"]) and queries > 1
    if is_causal and (mask is not None or queries != keys):
        seen = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
        mask = seen if mask is None else mask.masked_fill(~seen, float("-inf"))
        is_causal = False
    found = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=is_causal, scale=plan["scale"], enable_gqa=bool(heads)
    )
    order = plan["groups"] + heads + position
    sizes = dict(zip(indices[plan["query"]], given[plan["query"]].shape, strict=True))
    found = found.reshape([*(sizes[index] for index in order), found.shape[-1]])
    return found.permute([(order + plan["width"]).index(index) for index in indices[block["output"]]])


def _flat(tensor: Any, outer: int, inner: int) -> tuple[int, int]:
    """Extents of some first axes, and of some that follow, each as one."""
    shape = tensor.shape
    return shape[:outer].numel(), shape[outer : outer + inner].numel()
