"""Convolutions take padding and cut ends into their pads: one kernel, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import exported, imported, torch
from kernel_runs import lowered, model_of

from dietcode.models.rewriting import rewrite

F = torch.nn.functional
L = torch.export.Dim("L", min=24, max=600)
Function = Callable[..., Any]


class Convolved(torch.nn.Module):
    """A function of an input with channels last, and of a convolution with channels first."""

    def __init__(self, function: Function, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.conv = torch.nn.Conv1d(64, 64, 5, **options)

    def forward(self, x: Any) -> Any:
        return self.function(self.conv, x.mT).mT


FOLDED: dict[str, tuple[Function, dict[str, Any]]] = {
    "causal, by padding before": (lambda conv, x: conv(F.pad(x, (4, 0))), {}),
    "causal, by a cut after": (lambda conv, x: conv(x)[..., : x.shape[2]], {"padding": 4}),
    "cut at both ends": (lambda conv, x: conv(x)[..., 1:-3], {"padding": 4}),
    "one position too many": (lambda conv, x: F.gelu(conv(x)[:, :, :-1]), {"padding": 3, "groups": 4}),
    "in strides": (lambda conv, x: conv(x)[..., 1:-1], {"padding": 6, "stride": 3}),
    "far apart": (lambda conv, x: conv(F.pad(x, (8, 0))), {"dilation": 2, "groups": 64}),
    "padded twice": (lambda conv, x: conv(F.pad(x, (1, 2))), {"padding": 2}),
}


def _model(function: Function, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    module = Convolved(function, **options)
    graph, weights = imported(exported(module, (torch.randn(2, 40, 64),), ({1: L},)))
    return module.eval(), graph, weights


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("name", FOLDED)
def test_padding_and_cuts_cost_nothing(name: str) -> None:
    module, graph, weights = _model(*FOLDED[name])
    made = lowered(graph)
    host = [step["host"] for step in made.description["steps"] if "host" in step and not step.get("view")]
    assert not set(host) & {"conv", "pad"}
    model = model_of(made, weights)
    for size in (24, 25, 26, 600):
        x = torch.randn(2, size, 64)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x), rtol=0, atol=1e-5)


KEPT: dict[str, tuple[Function, dict[str, Any]]] = {
    "more is cut than was padded": (lambda conv, x: conv(x)[..., 3:], {"padding": 2}),
    "a pad that is not zero": (lambda conv, x: conv(F.pad(x, (4, 0), value=1.0)), {}),
    "a pad that takes elements away": (lambda conv, x: conv(F.pad(x, (-1, 3))), {"padding": 2}),
    "a step": (lambda conv, x: conv(x)[..., ::2], {"padding": 2}),
    "the whole is read too": (
        lambda conv, x: (y := conv(x))[..., :-2] + y.mean(2, keepdim=True),
        {"padding": 2},
    ),
    "channels are cut": (lambda conv, x: conv(x)[:, :32], {"padding": 2}),
    "channels are padded": (lambda conv, x: conv(F.pad(x[:, :62], (0, 0, 1, 1))), {"padding": 2}),
}


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("name", KEPT)
def test_what_pads_cannot_say_stays(name: str) -> None:
    module, graph, weights = _model(*KEPT[name])
    assert {"pad", "slice"} & {node.operator for node in rewrite(graph).nodes}
    model = model_of(lowered(graph), weights)
    for size in (24, 31):
        x = torch.randn(2, size, 64)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x), rtol=0, atol=1e-5)


READ: dict[str, tuple[Function, dict[str, Any]]] = {
    "turned before a function": (lambda conv, x: F.silu(conv(x)[..., :-4].mT).mT, {"padding": 4}),
    "half of the channels gate the others": (lambda conv, x: F.glu(conv(x), 1), {"padding": 2}),
    "channels in parts": (
        lambda conv, x: torch.cat(
            [F.relu(a) if k else a for k, a in enumerate(conv(x).split([16, 48], 1))], 1
        ),
        {"padding": 2, "groups": 64},
    ),
    "turned twice": (lambda conv, x: conv(x).mT.contiguous().mT, {"padding": 2}),
    "turned, and an axis more": (lambda conv, x: conv(x).mT[:, None].mean(1).mT, {"padding": 2}),
}


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("name", READ)
def test_windows_are_kernels_whatever_order_they_are_read_in(name: str) -> None:
    module, graph, weights = _model(*READ[name])
    made = lowered(graph)
    assert "conv" not in [step["host"] for step in made.description["steps"] if "host" in step]
    model = model_of(made, weights)
    for size in (24, 31):
        x = torch.randn(2, size, 64)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x), rtol=0, atol=1e-5)
