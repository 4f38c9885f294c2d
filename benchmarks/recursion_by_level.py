"""Recursions in PyTorch, batched by level by hand, as well as that can be written.

The structure is put into the order of its levels beforehand, which is not counted. Products of inputs are one
product over all nodes; those of states are one for all gates that read the same rows; what a step computes
goes into the tables. `packed` has oneDNN's own layout of the weights, as ``torch.compile`` with freezing has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dietcode.runtime.recursion.structure import Structure

Weights = Mapping[str, Any]
Linear = Callable[..., Tensor]


class Levels:
    """A structure as PyTorch's indices.

    Parameters
    ----------
    structure : Structure
    num_slots : int
        Children of a node.
    """

    def __init__(self, structure: Structure, num_slots: int) -> None:
        self.num_nodes = structure.num_nodes
        self.order = torch.from_numpy(structure.order.astype(np.int64))
        self.roots = torch.from_numpy(structure.root_positions.astype(np.int64))
        self.num_leaves = structure.num_leaves
        places = structure.child_places(num_slots).astype(np.int64)
        begins = structure.level_begins.tolist()[1:]
        self._levels = [
            (begin, end, torch.from_numpy(np.ascontiguousarray(places[:, begin:end])))
            for begin, end in pairwise(begins)
        ]

    def __iter__(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the range of each level above the leaves, and where its children lie, [slots, rows]."""
        return iter(self._levels)

    def table(self, *shape: int) -> Tensor:
        """Return a table of states, whose last row is zeros."""
        made = torch.empty(self.num_nodes + 1, *shape)
        made[-1] = 0
        return made


def plain(weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Linear:
    """Return a product with a weight [columns, inner], of rows as PyTorch has them."""
    turned = weight.t().contiguous()

    def multiply(rows: Tensor) -> Tensor:
        found = torch.mm(rows, turned) if bias is None else torch.addmm(bias, rows, turned)
        return found.relu_() if relu else found

    return multiply


def packed(weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Linear:
    """Return a product with a weight in oneDNN's own layout."""
    reordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    after = "relu" if relu else "none"

    def multiply(rows: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, reordered, bias, after, [], "")
        return found

    return multiply


def tree_fc(w: Weights, levels: Levels, product: Callable[..., Linear]) -> Callable[[Tensor], Any]:
    """``relu(W · [left; right] + b)``; leaves are rows of a table of words."""
    words, hidden = w["vectors"], w["join"].shape[0]
    join = product(w["join"], w["join_bias"], relu=True)

    def run(ids: Tensor) -> Tensor:
        states = levels.table(hidden)
        leaves = ids[levels.order[: levels.num_leaves]]
        torch.index_select(words, 0, leaves, out=states[: levels.num_leaves])
        for begin, end, children in levels:
            rows = states.index_select(0, children.t().reshape(-1)).view(end - begin, 2 * hidden)
            states[begin:end] = join(rows)
        return states.index_select(0, levels.roots)

    return run


def tree_fc_of_tables(w: Weights, levels: Levels, product: Callable[..., Linear]) -> Callable[[Tensor], Any]:
    """The same with the products of all words computed ahead, which the first level looks up."""
    words, hidden = w["vectors"], w["join"].shape[0]
    join = product(w["join"], w["join_bias"], relu=True)
    left, right = words @ w["join"][:, :hidden].t() + w["join_bias"], words @ w["join"][:, hidden:].t()
    above = list(levels)[1:]
    first, end, children = next(iter(levels))
    if int(children.max()) >= levels.num_leaves or any(int(c.min()) < first for _, _, c in above):
        raise ValueError("a node has children that are no leaves beside leaves, or one child")

    def run(ids: Tensor) -> Tensor:
        states = levels.table(hidden)
        below = ids[levels.order[children]]
        own = torch.index_select(left, 0, below[0], out=states[first:end])
        own.add_(right.index_select(0, below[1])).relu_()
        for begin, stop, places in above:
            rows = states.index_select(0, places.t().reshape(-1)).view(stop - begin, 2 * hidden)
            states[begin:stop] = join(rows)
        return states.index_select(0, levels.roots)

    return run


def tree_lstm(w: Weights, levels: Levels, product: Callable[..., Linear]) -> Callable[[Tensor], Any]:
    """Child-sum TreeLSTM."""
    hidden = w["forget_of_h"].shape[0]
    of_x = product(
        torch.cat([w["gates_of_x"], w["forget_of_x"]]), torch.cat([w["gates_bias"], w["forget_bias"]])
    )
    of_sum, of_each = product(w["gates_of_h"]), product(w["forget_of_h"])

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        h, c = levels.table(hidden), levels.table(hidden)
        inputs = of_x(x.index_select(0, levels.order))
        gates, forgets = inputs[:, : 3 * hidden], inputs[:, 3 * hidden :]

        def finish(begin: int, end: int, given: Tensor, kept: Tensor | None) -> None:
            i, o, u = given[:, :hidden], given[:, hidden : 2 * hidden], given[:, 2 * hidden :]
            new = torch.sigmoid(i).mul_(torch.tanh(u))
            own = new if kept is None else new.add_(kept)
            c[begin:end] = own
            torch.mul(torch.sigmoid(o), own.tanh(), out=h[begin:end])

        finish(0, levels.num_leaves, gates[: levels.num_leaves], None)
        for begin, end, children in levels:
            rows = end - begin
            below = children.view(-1)
            h_below = h.index_select(0, below)
            c_below = c.index_select(0, below).view(-1, rows, hidden)
            forget = of_each(h_below).view(-1, rows, hidden).add_(forgets[begin:end]).sigmoid_()
            kept = forget.mul_(c_below).sum(0)
            summed = h_below.view(-1, rows, hidden).sum(0)
            finish(begin, end, of_sum(summed).add_(gates[begin:end]), kept)
        return h.index_select(0, levels.roots), c.index_select(0, levels.roots)

    return run


def tree_gru(w: Weights, levels: Levels, product: Callable[..., Linear]) -> Callable[[Tensor], Any]:
    """Child-sum TreeGRU, whose candidate reads what it resets."""
    hidden = w["new_of_h"].shape[0]
    of_x, of_h, new_of_h = (
        product(w["of_x"], w["of_x_bias"]),
        product(w["gates_of_h"]),
        product(w["new_of_h"]),
    )

    def run(x: Tensor) -> Tensor:
        states = levels.table(hidden)
        inputs = of_x(x.index_select(0, levels.order))
        leaves = inputs[: levels.num_leaves]
        torch.mul(
            torch.sigmoid(leaves[:, :hidden]), leaves[:, 2 * hidden :].tanh(), out=states[: levels.num_leaves]
        )
        for begin, end, children in levels:
            h = states.index_select(0, children.view(-1)).view(-1, end - begin, hidden).sum(0)
            gates = of_h(h).add_(inputs[begin:end, : 2 * hidden]).sigmoid_()
            update, reset = gates[:, :hidden], gates[:, hidden:]
            new = new_of_h(reset * h).add_(inputs[begin:end, 2 * hidden :]).tanh_()
            torch.lerp(h, new, update, out=states[begin:end])
        return states.index_select(0, levels.roots)

    return run


def mv_rnn(w: Weights, levels: Levels, product: Callable[..., Linear]) -> Callable[[Tensor], Any]:
    """A vector and a matrix of each node; a child's matrix acts on its sibling's vector."""
    hidden = w["vectors"].shape[1]
    join, left = product(w["join"], w["join_bias"]), w["matrices"]

    def run(ids: Tensor) -> tuple[Tensor, Tensor]:
        vectors, matrices = levels.table(hidden), levels.table(hidden, hidden)
        leaves = ids[levels.order[: levels.num_leaves]]
        torch.index_select(w["vectors"], 0, leaves, out=vectors[: levels.num_leaves])
        flat = matrices.view(-1, hidden * hidden)
        torch.index_select(w["leaf_matrices"], 0, leaves, out=flat[: levels.num_leaves])
        for begin, end, children in levels:
            rows = end - begin
            below = children.view(-1)
            own = matrices.index_select(0, below)
            siblings = vectors.index_select(0, children.flip(0).view(-1)).unsqueeze(2)
            applied = torch.bmm(own, siblings).view(2, rows, hidden)
            vectors[begin:end] = join(torch.cat([applied[1], applied[0]], 1)).tanh_()
            both = own.view(2, rows, hidden, hidden).transpose(0, 1).reshape(rows, 2 * hidden, hidden)
            torch.matmul(left, both, out=matrices[begin:end])
        return vectors.index_select(0, levels.roots), matrices.index_select(0, levels.roots)

    return run


def dag_rnn(w: Weights, levels: Levels, product: Callable[..., Linear]) -> Callable[[Tensor], Any]:
    """``relu(W · x + U · (sum of neighbours) + b)``."""
    of_x, of_h, hidden = product(w["of_x"], w["of_x_bias"]), product(w["of_h"]), w["of_h"].shape[0]

    def run(x: Tensor) -> Tensor:
        states = levels.table(hidden)
        inputs = of_x(x.index_select(0, levels.order))
        states[: levels.num_leaves] = inputs[: levels.num_leaves].relu()
        for begin, end, children in levels:
            h = states.index_select(0, children.view(-1)).view(-1, end - begin, hidden).sum(0)
            states[begin:end] = of_h(h).add_(inputs[begin:end]).relu_()
        return states.index_select(0, levels.roots)

    return run


def lstm(w: Weights, levels: Levels, product: Callable[..., Linear]) -> Callable[[Tensor], Any]:
    """A sequence as ``torch.nn.LSTM`` has it: all sequences are of one length."""
    hidden = w["weight_hh"].shape[1]
    module = torch.nn.LSTM(w["weight_ih"].shape[1], hidden)
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(module, f"{name}_l0").copy_(w[name])
    batch = levels.num_leaves

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.index_select(0, levels.order).view(-1, batch, x.shape[1])
        _, (h, c) = module(rows)
        return h[0], c[0]

    return run


BY_LEVEL = {
    "tree-fc": tree_fc,
    "tree-lstm": tree_lstm,
    "tree-gru": tree_gru,
    "mv-rnn": mv_rnn,
    "dag-rnn": dag_rnn,
    "lstm": lstm,
}
