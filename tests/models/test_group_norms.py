"""Norms over groups of channels between convolutions: channels stay last, and nothing is copied for them."""

from __future__ import annotations

from typing import Any

import pytest
from graph_runs import imported, torch
from kernel_runs import lowered
from test_middle_axes import host_operators
from test_users_models import assert_calls, compiled

import dietcode

Dim, nn = torch.export.Dim, torch.nn
NORMS = {
    "groups": lambda: nn.GroupNorm(4, 12),
    "one group": lambda: nn.GroupNorm(1, 12, affine=False),
    "each channel": lambda: nn.InstanceNorm2d(12, affine=True),
}


@pytest.mark.parametrize("norm", NORMS)
def test_between_convolutions(norm: str) -> None:
    torch.manual_seed(0)
    own = NORMS[norm]()
    for one in own.parameters():
        nn.init.normal_(one)
    module = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), own, nn.SiLU(), nn.Conv2d(12, 4, 1)).eval()
    shapes = ({0: Dim("B", min=1, max=9), 2: Dim("H", min=1, max=70), 3: Dim("W", min=1, max=70)},)
    model = compiled(module, (torch.randn(2, 3, 5, 4),), shapes)
    assert not host_operators(model)
    sizes = ((1, 1, 2), (9, 4, 5), (1, 70, 70), (4, 3, 12))
    assert_calls(module, model, [(torch.randn(b, 3, h, w) * 3 + 20,) for b, h, w in sizes])


def test_of_an_input_stays_as_it_is() -> None:
    """Nothing wrote its channels last, so that its rows are groups already."""
    module: Any = nn.GroupNorm(4, 12).eval()
    shapes = ({0: Dim("B", min=1, max=4)},)
    graph, _ = imported(dietcode.export(module, (torch.randn(2, 12, 5, 4),), dynamic_shapes=shapes))
    assert "layernorm" in str(lowered(graph).specs)
