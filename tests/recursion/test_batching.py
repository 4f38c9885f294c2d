"""Graphs of one node as graphs of rows: equal to PyTorch node by node, also as they are taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cell_graphs import H, assert_close, batched_cell, eager_rows, recursion_of, run_rows
from graph_runs import torch

from dietcode.errors import ModelError
from dietcode.recursion.rewriting import canonical, distinct_outputs

F = torch.nn.functional
Function = Callable[..., Any]
# Of a module with weights w [8, 8], v [8], u [8, 6], and x [6], a [8], b [8].
VECTORS: dict[str, Function] = {
    "ranks that differ": lambda m, x, a, b: a * m.w.sum(0) + b.reshape(1, H)[0] * x[:1] - (a * b).sum(),
    "a scalar of the node": lambda m, x, a, b: (a @ b) * m.v + x.mean() + torch.clamp(a, -1, 0.5),
    "outer product": lambda m, x, a, b: (a.reshape(H, 1) * b).sum(1) + (m.w * a).max(0).values,
    "linear without a bias": lambda m, x, a, b: F.linear(a, m.w) + F.linear(x, m.u, m.v) + m.w @ b,
    "vector times matrix": lambda m, x, a, b: a @ m.w + (m.w.T @ b) + torch.relu(x @ m.u.T),
    "its own matrix": lambda m, x, a, b: torch.outer(a, b) @ a + b @ torch.outer(a, m.v) + m.w @ a,
    "a matrix of weights times its own": lambda m, x, a, b: (m.w @ torch.outer(a, b)).sum(0),
    "weights that the node computes": lambda m, x, a, b: F.linear(b, torch.outer(a, b), a),
    "softmax and norms": lambda m, x, a, b: (
        F.softmax(a, 0) * F.layer_norm(b, (H,), m.v) + F.rms_norm(a, (H,))
    ),
    "concatenated products": lambda m, x, a, b: F.linear(torch.cat([a, b]), torch.cat([m.w, m.w.T], 1), m.v),
    "concatenated with weights": lambda m, x, a, b: torch.cat([a[:4], m.v[:2], b[6:]]) + F.linear(a, m.w),
    "gates by chunks": lambda m, x, a, b: (
        torch.sigmoid(F.linear(a, m.w)[:4]).repeat(2) + torch.cat(F.linear(b, m.w, m.v).chunk(2)[::-1])
    ),
    "gates of sums": lambda m, x, a, b: torch.cat(
        [torch.tanh(one) for one in (F.linear(a, m.w) + F.linear(b, m.w) + F.linear(x, m.u)).split(2)]
    ),
    "gates of a reshaped product": lambda m, x, a, b: torch.cat(
        [torch.tanh(F.linear(a, m.w).reshape(2, 4)[k]) for k in (1, 0)]
    ),
    "unit axes": lambda m, x, a, b: torch.tanh(F.linear(a.unsqueeze(0), m.w) + b.unsqueeze(0) * m.v).squeeze(
        0
    ),
    "transposed, flipped, padded": lambda m, x, a, b: (torch.outer(a, b).T.flip(1) + F.pad(x, (1, 1))).sum(1),
    "expanded": lambda m, x, a, b: a.expand(3, H).mean(0) + x[0].expand(H) + torch.where(a > b, a, -b),
    "the same for all nodes": lambda m, x, a, b: m.v * 2 + m.w[0],
    "a state as it is": lambda m, x, a, b: a,
    "rolled": lambda m, x, a, b: torch.cat([-a[4:], a[:4]]) + a.cumsum(0) + torch.arange(8),
    "taken by positions": lambda m, x, a, b: a[torch.tensor([1, 0, 3, 2, 7, 6, 5, 4])] + torch.tril(m.w)[2],
    "compared": lambda m, x, a, b: (a > 0).float() * b + (b.argmax() == 2).float() + torch.logical_not(a > b),
}


def _together(names: list[str]) -> Function:
    """A cell with a state for each of some functions of the first states of two children."""
    return lambda m, x, *below: tuple(VECTORS[name](m, x, below[0], below[len(names)]) for name in names)


@pytest.mark.parametrize("first", range(0, len(VECTORS), 8))
def test_vectors(first: int) -> None:
    names = list(VECTORS)[first : first + 8]
    recursion = recursion_of(_together(names), states=[(H,)] * len(names))
    _, graph, weights = batched_cell(recursion)
    taken_apart = distinct_outputs(canonical(graph, "order"))
    for rows in (1, 5):
        wanted = eager_rows(recursion, rows)
        for made in (graph, taken_apart):
            found = run_rows(made, weights, recursion, rows)
            for name, own, right in zip(names, found, wanted, strict=True):
                assert_close([own], [right], name)


def test_states_that_are_matrices_or_the_same() -> None:
    def cell(m: Any, a: Any, a_matrix: Any, b: Any, b_matrix: Any) -> Any:
        return torch.tanh(b_matrix @ a), m.w @ (a_matrix + b_matrix), b_matrix @ a

    recursion = recursion_of(lambda *args: cell(*args)[:2], 2, [(H,), (H, H)], None)
    _, graph, weights = batched_cell(recursion)
    assert_close(run_rows(graph, weights, recursion, 4), eager_rows(recursion, 4))
    twice = recursion_of(lambda m, a, b, c, d: (a + c, a + c), 2, [(H,), (H,)], None)
    _, graph, weights = batched_cell(twice)
    graph = distinct_outputs(canonical(graph, "order"))
    assert len(set(graph.outputs)) == 2
    assert_close(run_rows(graph, weights, twice, 4), eager_rows(twice, 4))


def test_ids_read_rows_of_a_table() -> None:
    recursion = recursion_of(lambda m, x, a, b: F.embedding(x, m.w) + a * b, x=())
    _, graph, weights = batched_cell(recursion)
    assert_close(run_rows(graph, weights, recursion, 6), eager_rows(recursion, 6))


def test_products_of_the_same_rows_become_one_with_gates() -> None:
    def cell(m: Any, x: Any, a: Any, b: Any) -> Any:
        return torch.tanh(F.linear(a, m.w, m.v)) * torch.sigmoid(F.linear(a, m.w.T)) + F.linear(b, m.w)

    _, graph, _ = batched_cell(recursion_of(cell))
    products = [node for node in canonical(graph, "order").nodes if node.operator == "linear"]
    assert sorted(graph.types[node.operands[0]].shape[1].constant for node in products) == [H, H]
    widths = sorted(len(node.operands) for node in products)
    assert widths == [2, 3]  # one of them has a bias, of both of its gates


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda m, x, a, b: torch.topk(a, 8).values + b, "top: is not computed for the nodes of a level"),
        (lambda m, x, a, b: a[(a > 0).long()] + b, "take: takes positions that depend on values"),
        (lambda m, x, a, b: F.layer_norm(a, (H,), b), "layernorm: has weights that depend"),
        (
            lambda m, x, a, b: torch.index_select(m.w, 1, (a > 0).long())[0] + b,
            "positions along a later axis",
        ),
    ],
)
def test_what_has_no_form_for_many_nodes_is_named(function: Function, problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as raised:
        batched_cell(recursion_of(function))
    assert "cell_graphs.py:" in str(raised.value) and "dietcode.program" in str(raised.value)
