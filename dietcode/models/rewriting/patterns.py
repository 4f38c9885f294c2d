"""Layers that models spell out: attention, RMSnorm and rotary embeddings, put together again."""

from __future__ import annotations

from dietcode.graph.extent import ONE
from dietcode.graph.graph import Node, Value
from dietcode.models.rewriting.rewriter import Rewriter

_HIDDEN = -1e30  # a mask's number at most: what it is added to vanishes


def number_and_tensor(node: Node) -> tuple[float, str] | None:
    """Return the number and the tensor of a node of one each."""
    numbers = [one for one in node.operands if isinstance(one, int | float)]
    tensors = [one for one in node.operands if isinstance(one, str)]
    return (float(numbers[0]), tensors[0]) if len(numbers) == 1 and len(tensors) == 1 else None


def scaled(r: Rewriter, value: Value) -> tuple[Value, float]:
    """Return what a value is a multiple of, and the factor."""
    factor = 1.0
    while True:
        node = r.producer(value, "mul", "div")
        pair = None if node is None else number_and_tensor(node)
        if (
            node is None
            or pair is None
            or (node.operator == "div" and (not isinstance(node.operands[1], int | float) or not pair[0]))
        ):
            return value, factor
        factor = factor * pair[0] if node.operator == "mul" else factor / pair[0]
        value = pair[1]


def _scores(r: Rewriter, value: Value) -> tuple[Node, float, list[str]] | None:
    """Return the product, the scale and the masks of scores."""
    masks: list[str] = []
    while True:
        value, factor = scaled(r, value)
        product = r.producer(value, "matmul")
        if product is not None:
            return product, factor, masks
        node = r.producer(value, "add", "where")
        if node is None or factor != 1.0:
            return None
        if node.operator == "where":
            condition, hidden, kept = node.operands
            if not isinstance(hidden, int | float) or hidden > _HIDDEN or not isinstance(kept, str):
                return None
            # Scores vanish beside the number; where a whole row has it, all keys weigh the same.
            masks.append(r.add("where", condition, hidden, 0.0, dtype=r.type(kept).dtype))
            value = kept
            continue
        first, second = node.operands
        if not isinstance(first, str) or not isinstance(second, str):
            return None
        inner = [one for one in (first, second) if _is_scores(r, one)]
        if len(inner) != 1:
            return None
        masks.append(second if inner[0] == first else first)
        value = inner[0]


def _is_scores(r: Rewriter, value: Value) -> bool:
    value, _ = scaled(r, value)
    node = r.producer(value, "add", "where")
    if node is not None:
        return any(_is_scores(r, one) for one in node.tensors)
    return r.producer(value, "matmul") is not None


def attention(r: Rewriter, node: Node) -> str | None:
    """``matmul(softmax(scale · q·kᵀ + mask), v)`` -> ``attention(q, k, v, mask)``."""
    weights = r.producer(node.operands[0], "softmax") if node.operator == "matmul" else None
    if weights is None or not r.is_read_once(node.operands[0]):
        return None
    rank = r.type(node.operands[0]).rank
    found = _scores(r, weights.operands[0]) if weights.attributes["axis"] in (-1, rank - 1) else None
    if found is None:
        return None
    product, scale, masks = found
    # Some exporters scale both operands by a root, so that neither overflows in half precision.
    bare = [scaled(r, one) for one in product.operands]
    (query, keys), scale = (str(one) for one, _ in bare), scale * bare[0][1] * bare[1][1]
    values = str(node.operands[1])
    shapes = [r.type(one).shape for one in (query, keys, values)]
    batch = shapes[0][:-2]
    if rank < 3 or len(masks) > 2 or any(len(one) != rank or one[:-2] != batch for one in shapes):
        return None
    key = r.transpose(keys, [*range(rank - 2), rank - 1, rank - 2])
    mask = masks[0] if len(masks) == 1 else r.add("add", *masks) if masks else None
    operands = () if mask is None else (mask,)
    masked = weights.attributes["masked_rows"]
    return r.add("attention", query, key, values, *operands, scale=scale, causal="none", masked_rows=masked)


def rmsnorm(r: Rewriter, node: Node) -> str | None:
    """``x · rsqrt(mean(x²) + eps) · gamma`` -> ``rmsnorm(x, gamma)``."""
    if node.operator != "mul" or len(node.tensors) != 2:
        return None
    for x, scale in (node.tensors, node.tensors[::-1]):
        eps = _inverse_of_mean_square(r, x, scale)
        if eps is not None:
            return r.add("rmsnorm", x, eps=eps)
        norm = r.producer(x, "rmsnorm")
        shape = r.type(scale).shape
        if norm is not None and len(norm.operands) == 1 and shape == r.type(x).shape[-1:]:
            return r.add("rmsnorm", norm.operands[0], scale, eps=norm.attributes["eps"])
    return None


def _inverse_of_mean_square(r: Rewriter, x: str, scale: str) -> float | None:
    root = r.producer(scale, "rsqrt")
    total = None if root is None else r.producer(root.operands[0], "add")
    pair = None if total is None else number_and_tensor(total)
    mean = None if pair is None else r.producer(pair[1], "mean")
    if pair is None or mean is None or not mean.attributes["keep"]:
        return None
    rank = r.type(x).rank
    square = r.producer(mean.operands[0], "square", "mul")
    if tuple(axis % rank for axis in mean.attributes["axes"]) != (rank - 1,) or square is None:
        return None
    same = set(square.operands) == {x}
    return pair[0] if same and pair[0] > 0 else None


def rotate(r: Rewriter, node: Node) -> str | None:
    """``concat(-x[…, h:], x[…, :h])`` -> ``rotate(x)``, the half of a rotary embedding."""
    if node.operator != "concat" or len(node.operands) != 2:
        return None
    rank = r.type(node.operands[0]).rank
    if node.attributes["axis"] % rank != rank - 1:
        return None
    minus = r.producer(node.operands[0], "neg")
    last = r.producer(minus.operands[0] if minus is not None else node.operands[0], "slice")
    first = r.producer(node.operands[1], "slice")
    if last is None or first is None or last.operands != first.operands:
        return None
    x = str(last.operands[0])
    width = r.type(x).shape[-1]
    bounds = [
        (
            one.attributes["axis"] % rank,
            one.attributes["start"],
            one.attributes["stop"],
            one.attributes["step"],
        )
        for one in (first, last)
    ]
    half = bounds[0][2]
    if bounds != [(rank - 1, half * 0, half, 1), (rank - 1, half, width, 1)] or not width.is_constant:
        return None
    if width == ONE:
        return None
    by = width.constant - half.constant
    return r.add("rotate", x, by=by, negate=minus is not None)


def guarded(r: Rewriter, node: Node) -> str | None:
    """``where(isnan(p), 0, p)`` of ``p = softmax(x)`` -> p with 0 for rows that are masked as a whole."""
    condition = r.producer(node.operands[0], "not_equal") if node.operator == "where" else None
    if condition is None or r.producer(node.operands[2], "softmax") is None or node.operands[1] != 0:
        return None
    weights = str(node.operands[2])
    if condition.operands != (weights, weights):
        return None
    softmax = r.producer(weights, "softmax")
    assert softmax is not None
    return r.add("softmax", softmax.operands[0], axis=softmax.attributes["axis"], masked_rows="zero")


PATTERNS = (attention, rmsnorm, rotate, guarded)
