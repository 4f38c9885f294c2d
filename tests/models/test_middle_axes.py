"""Norms, softmax, reductions and positions of extremes along axes that others follow: kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph_runs import torch
from test_users_models import assert_calls, compiled

from dietcode.runtime.models.executable import HostStep
from dietcode.runtime.models.model import Model

Dim, nn, F = torch.export.Dim, torch.nn, torch.nn.functional


def host_operators(model: Model) -> set[str]:
    """Return what NumPy computes in a model."""
    steps = [step for step in model.executable.all_steps if isinstance(step, HostStep)]
    return {step.operator for step in steps if not step.is_view}


class Channels(nn.Module):
    """What goes along the channels of images, with channels first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(6, 1, 1)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Return a softmax, its logarithm, a norm that is spelled out, and three reductions."""
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        norm = self.weight * ((x - mean) / torch.sqrt(variance + 1e-6)) + self.bias
        sizes = (x * x).sum(1).sqrt() + x[:, 0].amin(1, keepdim=True)
        return F.softmax(x, 1), F.log_softmax(x * 2, 1), norm, sizes, F.softmax(x, 2), x.amin((1, 2)) + 1


def test_along_channels() -> None:
    batch, height, width = Dim("B", min=1, max=40), Dim("H", min=1, max=40), Dim("W", min=1, max=40)
    torch.manual_seed(0)
    module = Channels().eval()
    model = compiled(module, (torch.randn(2, 6, 3, 4),), ({0: batch, 2: height, 3: width},))
    assert host_operators(model) <= {"copy"}
    sizes = ((1, 1, 1), (6, 6, 6), (2, 9, 5), (1, 6, 1), (3, 1, 7))
    assert_calls(module, model, [(torch.randn(b, 6, h, w) * 9,) for b, h, w in sizes])


class Square(nn.Module):
    """Values whose axes have one extent, so that a shape does not say which axis is left."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, x: Any) -> Any:
        """Return reductions of two axes in turn, with a bias along the axis that stays last."""
        last, middle = x.mean(-1) + self.bias, x.amax(1) * self.bias
        return last.exp(), F.softmax(middle, -1), x.sum(1) + x.sum(2), x.mean(1, keepdim=True) + self.bias


def test_extents_that_are_equal() -> None:
    torch.manual_seed(0)
    module = Square().eval()
    model = compiled(module, (torch.randn(3, 6, 6),), ({0: Dim("B", min=1, max=9000)},))
    assert_calls(module, model, [(torch.randn(rows, 6, 6),) for rows in (1, 6, 50)])


class Extremes(nn.Module):
    def forward(self, x: Any) -> Any:
        """Return where the extremes are along each axis, and of all."""
        return (
            *(x.argmax(-1), x.argmin(-1, keepdim=True), x.argmax(1), x.argmin(0)),
            *(x.max(2).indices, x.min(1).values),
        )


def test_positions_of_extremes_are_kernels() -> None:
    shapes = ({0: Dim("B", min=1, max=20), 1: Dim("L", min=1, max=90)},)
    model = compiled(Extremes(), (torch.randn(2, 4, 21),), shapes)
    assert not host_operators(model) & {"argmax", "argmin", "max", "min"}
    calls = [torch.randn(*size, 21) for size in ((1, 1), (20, 90), (3, 7))]
    ties = torch.randint(0, 3, (4, 9, 21)).float()
    infinite = torch.full((2, 3, 21), -torch.inf)
    infinite[0, 1, 5:7] = torch.inf
    no_numbers = torch.randn(3, 5, 21)
    no_numbers[1, 2, 4] = no_numbers[1, 2, 9] = no_numbers[0, :, 0] = torch.nan
    assert_calls(Extremes(), model, [(one,) for one in (*calls, ties)])
    for x in (infinite, no_numbers):
        for own, right in zip(model(x)[:5], Extremes()(x)[:5], strict=True):
            np.testing.assert_array_equal(own, right)
