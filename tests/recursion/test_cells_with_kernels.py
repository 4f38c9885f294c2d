"""Cells with compiled kernels, over structures at the edge: what calls return is what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_graphs import assert_close
from needs import of_extra
from recursion_runs import random_structure
from small_libraries import untuned_library

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
pytest.importorskip("tvm", reason=of_extra("models"))
from test_taken_apart import Parts  # noqa: E402

import dietcode  # noqa: E402
from dietcode.models import compiling  # noqa: E402
from dietcode.recursion.compiling import compile_recursion  # noqa: E402
from dietcode.recursion.exporting import export_cells  # noqa: E402
from dietcode.recursion.module import ChildSum, Recursion  # noqa: E402

nn, F = torch.nn, torch.nn.functional
MAX_LEVEL = 60


def _normed_along_an_axis(m: Any, x: Any, h: Any) -> Any:
    rows = h.mean(0) + x
    rows = (rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 0.1)
    return torch.tanh(m.w(rows)) + rows.mean(0) / 10


def _best_paths(m: Any, x: Any, a: Any, p: Any, b: Any, q: Any) -> Any:
    """Scores of labels, and the best label of the left child for each."""
    left, right = m.t + a, m.t + b
    scores = left.amax(1) + right.amax(1) + x
    return scores - scores.amax(), left.argmax(1).float()


def _of_those_there(m: Any, x: Any, h: Any, there: Any) -> Any:
    scores = torch.where(there > 0, (m.k(h) * m.q(x)).sum(-1), -1e9)
    return torch.tanh(torch.softmax(scores, 0) @ h + x), torch.ones(())


def _forbidden_labels(m: Any, x: Any, a: Any, b: Any) -> Any:
    """The forward algorithm over a tree; no label may follow the first one."""
    scores = torch.logsumexp(m.t + a, 1) + torch.logsumexp(m.t + b, 1) + x
    return torch.clamp(scores - torch.logsumexp(scores, 0), min=-40)


def _bent(m: Any, x: Any, a: Any, b: Any) -> Any:
    return F.softplus(m.w(a) + x, beta=2, threshold=1) - F.elu(b, 0.7)


# A cell, its layers, its children, states and x.
CELLS: dict[str, tuple[Any, Callable[[], dict[str, Any]], Any, list[Any], Any]] = {
    "a matrix normed along an axis": (
        _normed_along_an_axis,
        lambda: {"w": nn.Linear(6, 6)},
        *(ChildSum(3), [(4, 6)], (4, 6)),
    ),
    "best paths": (
        _best_paths,
        lambda: {"t": nn.Parameter(torch.randn(9, 9))},
        *(2, [(9,), (9,)], (9,)),
    ),
    "forbidden labels": (
        _forbidden_labels,
        lambda: {"t": nn.Parameter(torch.where(torch.arange(9)[:, None] > 0, torch.randn(9, 9), -torch.inf))},
        *(2, [(9,)], (9,)),
    ),
    "attention over children that are there": (
        _of_those_there,
        lambda: {"k": nn.Linear(24, 24), "q": nn.Linear(24, 24)},
        *(ChildSum(4), [(24,), ()], (24,)),
    ),
    "softplus with a threshold": (_bent, lambda: {"w": nn.Linear(24, 24)}, *(2, [(24,)], (24,))),
}


def _structures(most: int) -> dict[str, Any]:
    """A node alone, a chain, one with fifty parents, a level of several ranges, and trees beside leaves."""

    def row(*children: int) -> list[int]:
        return [-1] * (most - len(children)) + list(children)

    alone = [row()]
    shared = [row(), row(0), *([row(1), row(1, 0)] * 25), *(row(at, at + 1) for at in range(2, 51))]
    wide = [row(), row(), *[row(0, 1)] * (2 * MAX_LEVEL + 5)]
    trees = random_structure(3, 40, most).children
    return {
        "alone": alone,
        "a chain": [row(), *(row(at) for at in range(150))],
        "shared": shared,
        "wide": wide,
        "trees": np.concatenate([trees, [row()] * 3]),
        "no columns": np.empty((3, 0), np.int32),
    }


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("name", CELLS)
def test_as_eager(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "make_library", untuned_library)
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "cache"))
    function, layers, children, states, x = CELLS[name]
    torch.manual_seed(1)
    recursion = Recursion(Parts(function, **layers()).eval(), children=children, states=states, x=x)
    cells, weights = export_cells(recursion, "cell")
    compile_recursion(cells, weights, tmp_path / "bundle", max_nodes=200, max_level=MAX_LEVEL)
    model = dietcode.load(tmp_path / "bundle")
    for label, rows in _structures(recursion.children).items():
        structure = dietcode.Structure(rows)
        given = np.random.default_rng(3).standard_normal((structure.num_nodes, *x)).astype(np.float32)
        found, wanted = (
            one if isinstance(one, tuple) else (one,)
            for one in (call(structure, given, all_nodes=True) for call in (model, recursion))
        )
        assert_close(found, [one.detach().numpy() for one in wanted], label)
