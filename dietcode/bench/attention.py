"""Attention by PyTorch's ``scaled_dot_product_attention``, on views of the tensors as they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.search_space.attention.problem import AttentionProblem


def torch_attention(torch: Any, problem: AttentionProblem, values: Mapping[str, Any]) -> Any:
    """Compute attention.

    Queries of several heads that share keys go as its groups (``enable_gqa``). Its own causal mask starts at
    the first key, so that it is taken where there are as many queries as keys; a single query needs none.

    Parameters
    ----------
    torch : module
        PyTorch.
    values : mapping of str to tensor
        The inputs.
    """
    plan = problem.plan
    along = plan.causal or plan.rows[-1]  # the index that goes as the queries' positions
    heads = plan.rows.replace(along, "")
    query = _as_heads(values[plan.query], problem.indices[plan.query], plan.groups, heads, along + plan.depth)
    key, value = (
        _as_heads(values[name], problem.indices[name], plan.groups, "", plan.keys + last)
        for name, last in ((plan.key, plan.depth), (plan.value, plan.width))
    )
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    mask = None
    if plan.mask is not None:
        mask = _mask(values[plan.mask], problem.indices[plan.mask], plan.groups + heads, along + plan.keys)
        mask = _four(mask, len(plan.groups), len(heads))
    if plan.lengths is not None:
        lengths = _mask(values[plan.lengths], problem.indices[plan.lengths], plan.groups + heads, along)
        exists = torch.arange(num_keys) < _four(lengths.unsqueeze(-1), len(plan.groups), len(heads))
        mask = exists if mask is None else mask.masked_fill(~exists, float("-inf"))
    is_causal = plan.causal is not None and num_queries > 1
    if is_causal and (mask is not None or num_queries != num_keys):
        seen = torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)
        if mask is None:
            mask = seen
        else:
            mask = mask & seen if mask.dtype == torch.bool else torch.where(seen, mask, float("-inf"))
        is_causal = False
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=is_causal, scale=plan.scale, enable_gqa=bool(heads)
    )
    sizes = dict(zip(problem.indices[plan.query], values[plan.query].shape, strict=True))
    order = plan.groups + heads + along
    result = result.reshape([*(sizes[index] for index in order), result.shape[-1]])
    axes = order + plan.width
    return result.permute([axes.index(index) for index in problem.indices[problem.outputs[0]]])


def _as_heads(tensor: Any, own: str, groups: str, heads: str, last: str) -> Any:
    """Return a tensor as [batch, heads, positions, elements]."""
    order = [own.index(index) for index in groups + heads + last]
    return _four(tensor.permute(order), len(groups), len(heads))


def _mask(tensor: Any, own: str, outer: str, last: str) -> Any:
    """Return a mask with an axis for each index, of extent 1 where it lacks the index."""
    whole = outer + last
    tensor = tensor.permute([own.index(index) for index in whole if index in own])
    return tensor[tuple(slice(None) if index in own else None for index in whole)]


def _four(tensor: Any, num_groups: int, num_heads: int) -> Any:
    """Return a tensor whose first group is the batch, and whose other groups and heads are one axis."""
    if not num_groups:
        tensor = tensor.unsqueeze(0)
    axes = max(num_groups, 1) - 1 + num_heads
    if not axes:
        return tensor.unsqueeze(1)
    return tensor.flatten(1, axes) if axes > 1 else tensor
