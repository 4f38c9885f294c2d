"""Reductions over axes that others follow are kernels, and so are copies that transpose many elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph_runs import imported, torch
from kernel_runs import lowered, model_of

from dietcode.models.exporting import export

B = torch.export.Dim("B", min=1, max=8)
H, W = (torch.export.Dim(name, min=2, max=96) for name in "HW")
SIZES = ((2, 9, 7), (1, 2, 2), (8, 50, 33))


class _Reducing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        """Return reductions over the first axes, over axes between others, and over functions of these."""
        return (
            x.mean((0, 1)),
            x.sum((1, 2)),
            x.amax((1, 2), keepdim=True),
            torch.linalg.vector_norm(x, dim=(1, 2)),
            x.relu().mean(1, keepdim=True),
        )


class _Transposing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        """Return axes in other orders, the last one among them or not."""
        orders = ((0, 3, 1, 2), (2, 3, 0, 1), (1, 0, 2, 3), (0, 2, 1, 3))
        return tuple(x.permute(order).contiguous() for order in orders)


def _steps(model: Any, channels: int) -> list[dict[str, Any]]:
    """Compare a model, kernels by PyTorch, with eager PyTorch; returns its steps."""
    torch.manual_seed(0)
    args = (torch.randn(2, 9, 7, channels),)
    program = export(model.eval(), args, dynamic_shapes=({0: B, 1: H, 2: W},))
    graph, weights = imported(program)
    made = lowered(graph)
    compiled = model_of(made, weights)
    for size in SIZES:
        x = torch.randn(*size, channels)
        for own, right in zip(compiled(x.numpy()), model(x), strict=True):
            assert own.shape == right.shape
            largest = float(right.abs().max())
            np.testing.assert_allclose(own, right.numpy(), rtol=0, atol=1e-5 * largest)
    steps: list[dict[str, Any]] = made.description["steps"]
    return steps


def _hosts(steps: list[dict[str, Any]]) -> list[str]:
    return [step["host"] for step in steps if "host" in step and not step.get("view")]


def test_reductions() -> None:
    steps = _steps(_Reducing(), 6)
    assert _hosts(steps) == []
    assert sum("kernel" in step for step in steps) == 5


def test_transpositions() -> None:
    """By kernels where another axis becomes the last one; the host copies rows as fast."""
    steps = _steps(_Transposing(), 6)
    assert _hosts(steps) == ["copy"] * 2 and sum("kernel" in step for step in steps) == 2


def test_small_transpositions_are_the_hosts() -> None:
    x = torch.randn(2, 9, 7, 6)
    program = export(_Transposing().eval(), (x,), dynamic_shapes=({0: B, 1: H, 2: W},))
    made = lowered(imported(program, H=(2, 16), W=(2, 16))[0])
    assert _hosts(made.description["steps"]) == ["copy"] * 4 and not made.specs


def test_a_transposition_is_written_once() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            """Return a transposed value in two other shapes, which read it in order."""
            y = x.permute(0, 3, 1, 2)
            return y.reshape(y.shape[0], -1), y.reshape(-1, y.shape[3])

    steps = _steps(Twice(), 6)
    assert sum("kernel" in step for step in steps) == 1 and "copy" not in _hosts(steps)
