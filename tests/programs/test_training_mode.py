"""Layers in training mode: what computes the same in evaluation is taken, all else is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
from needs import of_extra

from dietcode.programs.exporting import differs_in_training

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
nn = torch.nn


class _Own(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2 if self.training else x


SAME = {
    "linear": lambda: nn.Linear(2, 2),
    "cell": lambda: nn.LSTMCell(2, 2),
    "sequence": lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LayerNorm(2)),
    "layers": lambda: nn.LSTM(2, 2, num_layers=2),
    "evaluated dropout": lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout().eval()),
    "an own module, evaluated": lambda: _Own().eval(),
}
OTHER = {
    "dropout": lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout()),
    "batch norm": lambda: nn.BatchNorm1d(2),
    "layers with dropout": lambda: nn.LSTM(2, 2, num_layers=2, dropout=0.5),
    "attention": lambda: nn.MultiheadAttention(2, 1, dropout=0.5),
    "random slopes": nn.RReLU,
    "an own module": _Own,
    "an own module inside": lambda: nn.Sequential(_Own()),
    "a norm by a hook": lambda: nn.utils.spectral_norm(nn.Linear(2, 2)),
}


@pytest.mark.parametrize("name", [*SAME, *OTHER])
def test_what_differs_in_training(name: str) -> None:
    module = {**SAME, **OTHER}[name]()
    assert differs_in_training(module) is (name in OTHER)
