"""A block for other software: its nodes one by one, in NumPy's and in PyTorch's own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dietcode.bench.operator import Binder, Call, Operator
from dietcode.search_space.rows.reference import aligned, compute
from dietcode.workload.block import BlockNode
from dietcode.workload.pooling import PoolAxis, pool_axes


def _evaluate(
    operator: Operator,
    values: Mapping[str, Any],
    compute_node: Callable[[BlockNode, Sequence[Any], str, Sequence[str]], Any],
) -> Any:
    """Return the outputs: a tuple of several, or the one."""
    problem, known = operator.problem, dict(values)
    for name, node in problem.nodes.items():
        own = [problem.indices[o] if isinstance(o, str) else "" for o in node.operands]
        operands = [known[o] if isinstance(o, str) else o for o in node.operands]
        known[name] = compute_node(node, *aligned(node, operands, own), own)
    for name, (table, at) in problem.into.items():  # in place, as a program would
        known[table][known[at]] = known[name]
        known[name] = known[table]
    outputs = tuple(known[name] for name in problem.outputs)
    return outputs if len(outputs) > 1 else outputs[0]


def numpy_block(operator: Operator) -> dict[str, Binder]:
    """Return the path of NumPy, one function for each node; float32 stays float32."""

    def bind(arrays: Mapping[str, Any]) -> Call:
        return lambda: _evaluate(operator, arrays, compute)

    return {"numpy": bind}


def torch_block(torch: Any, operator: Operator, values: Mapping[str, Any]) -> Any:
    """Compute a block in PyTorch, with its own softmax and norms.

    Parameters
    ----------
    torch : module
        PyTorch.
    values : mapping of str to tensor
        The inputs.
    """

    def compute_node(node: BlockNode, operands: Sequence[Any], whole: str, own: Sequence[str]) -> Any:
        if node.operator in _AS_THEY_ARE:
            return _AS_THEY_ARE[node.operator](torch, node, operands, own)
        if node.operator in _ALONG_ROW:
            return _ALONG_ROW[node.operator](torch, node, operands, whole, own)
        if node.operator == "clip":
            return torch.clamp(operands[0], node.attribute("low"), node.attribute("high"))
        if node.operator == "gelu":
            form = node.attribute("form")
            return torch.nn.functional.gelu(operands[0], approximate="none" if form == "erf" else form)
        return _POINTWISE[node.operator](torch, *operands)

    return _evaluate(operator, values, compute_node)


def _tensor(torch: Any, value: Any, like: Any) -> Any:
    return torch.full_like(like, value) if isinstance(value, float) else value


def _pair(name: str) -> Callable[..., Any]:
    def call(torch: Any, a: Any, b: Any) -> Any:
        tensor = b if isinstance(a, float) else a
        return getattr(torch, name)(_tensor(torch, a, tensor), _tensor(torch, b, tensor))

    return call


_POINTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda torch, a, b: a + b,
    "sub": lambda torch, a, b: a - b,
    "mul": lambda torch, a, b: a * b,
    "div": lambda torch, a, b: a / b,
    "maximum": _pair("maximum"),
    "minimum": _pair("minimum"),
    "less": lambda torch, a, b: torch.where(a < b, 1.0, 0.0),
    "less_equal": lambda torch, a, b: torch.where(a <= b, 1.0, 0.0),
    "where": lambda torch, condition, a, b: torch.where(condition != 0, a, b),
    "neg": lambda torch, x: -x,
    "relu": lambda torch, x: torch.relu(x),
    "silu": lambda torch, x: torch.nn.functional.silu(x),
    **{
        name: (lambda torch, x, name=name: getattr(torch, name)(x))
        for name in (
            *("abs", "square", "sqrt", "rsqrt", "exp", "log", "sin", "cos"),
            *("floor", "ceil", "round", "tanh", "sigmoid"),
        )
    },
}


def _einsum(torch: Any, node: BlockNode, operands: Sequence[Any], own: Sequence[str]) -> Any:
    """Return a product; by ``linear``, which oneDNN may prepack, where it is one."""
    (first, second), (x, w), dims = operands, own, node.attribute("dims")
    if x.endswith(w[-1]) and dims == x[:-1] + w[:-1] and not set(x[:-1]) & set(w):
        product = torch.nn.functional.linear(first, second.flatten(0, -2))
        return product.unflatten(-1, second.shape[:-1]) if len(w) > 2 else product
    return torch.einsum(f"{x},{w}->{dims}", first, second)


def _pool(torch: Any, node: BlockNode, operands: Sequence[Any], own: Sequence[str]) -> Any:
    """Return PyTorch's pooling over the axes that a window slides over, which it wants last."""
    (x,), axes = operands, pool_axes(node, own[0])
    slid = [own[0].index(one.axis) for one in axes]
    others = [at for at in range(x.ndim) if at not in slid]
    order = [*others, *slid]
    moved = x.permute(order)
    images = moved if len(others) == 2 else moved.flatten(0, len(others) - 1).unsqueeze(1)
    y = _pool_images(torch, node, images, axes)
    y = y.reshape(*moved.shape[: len(others)], *y.shape[-len(slid) :])
    return y.permute([order.index(at) for at in range(x.ndim)])


def _pool_images(torch: Any, node: BlockNode, x: Any, axes: Sequence[PoolAxis]) -> Any:
    """Return the pooled images, [batch, channels, …]; padding that PyTorch has not is made beforehand."""
    functional, suffix = torch.nn.functional, f"{len(axes)}d"
    window, strides = [one.window for one in axes], [one.stride for one in axes]
    padding = [one.padding for one in axes]
    fits = all(one.padding == one.padding_after <= one.window // 2 for one in axes)
    sides = [side for one in reversed(axes) for side in (one.padding, one.padding_after)]
    if node.operator == "maxpool":
        if not fits:
            x, padding = functional.pad(x, sides, value=float("-inf")), [0] * len(axes)
        return getattr(functional, f"max_pool{suffix}")(x, window, strides, padding)
    average, counts_pad = getattr(functional, f"avg_pool{suffix}"), node.attribute("count_include_pad")
    if fits:
        return average(x, window, strides, padding, count_include_pad=counts_pad)
    y = average(functional.pad(x, sides), window, strides)
    return y if counts_pad else y / average(functional.pad(torch.ones_like(x), sides), window, strides)


def _rotate(torch: Any, node: BlockNode, operands: Sequence[Any], own: Sequence[str]) -> Any:
    by, within, x = node.attribute("by"), node.attribute("within"), operands[0]
    whole = x.shape[-1] // within * within if within else x.shape[-1]
    groups = x[..., :whole].unflatten(-1, (-1, within)) if within else x
    left, right = groups.split([groups.shape[-1] - by, by], -1)
    y = torch.cat((-right if node.attribute("negate") else right, left), -1)
    y = y.flatten(-2) if within else y
    return y if whole == x.shape[-1] else torch.cat((y, x[..., whole:]), -1)


_AS_THEY_ARE: dict[str, Callable[..., Any]] = {  # operands keep their own axes
    "einsum": _einsum,
    "gather": lambda torch, node, operands, own: torch.nn.functional.embedding(
        operands[1], operands[0].flatten(1)
    ).unflatten(-1, operands[0].shape[1:]),
    "relabel": lambda torch, node, operands, own: operands[0],
    "transpose": lambda torch, node, operands, own: (
        operands[0].permute([own[0].index(index) for index in node.attribute("dims")]).contiguous()
    ),
    "maxpool": _pool,
    "avgpool": _pool,
    "rotate": _rotate,
    "slice": lambda torch, node, operands, own: operands[0].select(
        own[0].index(node.attribute("axis")), node.attribute("at")
    ),
}


def _axes(node: BlockNode, whole: str) -> list[int]:
    return [whole.index(index) for index in node.attribute("axis")]


def _count_along(torch: Any, x: Any, axis: int) -> Any:
    """Return positions along an axis, with extent 1 along the others."""
    return torch.arange(x.shape[axis]).reshape([-1 if at == axis else 1 for at in range(x.ndim)])


def _softmax(torch: Any, node: BlockNode, operands: Sequence[Any], whole: str, own: Sequence[str]) -> Any:
    z, axes = operands[0], _axes(node, whole)
    if node.attribute("scale") != 1.0:
        z = z * node.attribute("scale")
    if len(operands) > 1:
        z = z + operands[1]
    if node.attribute("causal"):
        query = whole.index(node.attribute("causal"))
        last = _count_along(torch, z, query) + (z.shape[axes[0]] - z.shape[query])
        z = z.masked_fill(_count_along(torch, z, axes[0]) > last, float("-inf"))
    return torch.softmax(z.flatten(axes[0], axes[-1]), axes[0]).reshape(z.shape)


def _layernorm(torch: Any, node: BlockNode, operands: Sequence[Any], whole: str, own: Sequence[str]) -> Any:
    def norm(x: Any, shape: Any, parameters: Sequence[Any]) -> Any:
        return torch.nn.functional.layer_norm(x, shape, *parameters, eps=node.attribute("eps"))

    return _normed(node, norm, operands, whole, own)


def _rmsnorm(torch: Any, node: BlockNode, operands: Sequence[Any], whole: str, own: Sequence[str]) -> Any:
    def norm(x: Any, shape: Any, parameters: Sequence[Any]) -> Any:
        weight = parameters[0] if parameters else None
        return torch.nn.functional.rms_norm(x, shape, weight, node.attribute("eps"))

    return _normed(node, norm, operands, whole, own)


def _normed(
    node: BlockNode, norm: Callable[..., Any], operands: Sequence[Any], whole: str, own: Sequence[str]
) -> Any:
    """Return a norm along some axes, which PyTorch wants last, and takes parameters for."""
    x, *parameters = operands
    axes = _axes(node, whole)
    last = list(range(-len(axes), 0))
    moved = x.movedim(axes, last)
    shape = moved.shape[last[0] :]
    if all(indices == node.attribute("axis") for indices in own[1:]):
        return norm(moved, shape, [one.reshape(shape) for one in parameters]).movedim(last, axes)
    y = norm(moved, shape, []).movedim(last, axes)
    y = y * parameters[0]
    return y + parameters[1] if len(parameters) > 1 else y


def _hide(torch: Any, node: BlockNode, operands: Sequence[Any], whole: str, own: Sequence[str]) -> Any:
    (axis,), x = _axes(node, whole), operands[0]
    return x.masked_fill(_count_along(torch, x, axis) >= operands[1], float("-inf"))


_ALONG_ROW: dict[str, Callable[..., Any]] = {
    "hide": _hide,
    "sum": lambda torch, node, operands, whole, own: operands[0].sum(_axes(node, whole)),
    "mean": lambda torch, node, operands, whole, own: operands[0].mean(_axes(node, whole)),
    "max": lambda torch, node, operands, whole, own: operands[0].amax(_axes(node, whole)),
    "min": lambda torch, node, operands, whole, own: operands[0].amin(_axes(node, whole)),
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
}
