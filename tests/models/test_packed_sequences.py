"""Recurrent layers over packed sequences, and with projected states, beside eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from graph_runs import assert_same, imported, torch

import dietcode

Dim, nn = torch.export.Dim, torch.nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

B, L = Dim("B", min=1, max=6), Dim("L", min=1, max=9)


class Packed(nn.Module):
    """A layer over rows of lengths of their own."""

    def __init__(self, layer: Any, is_sorted: bool, is_whole: bool, has_state: bool) -> None:
        super().__init__()
        self.layer, self.is_sorted, self.is_whole = layer, is_sorted, is_whole
        self.begin = nn.Parameter(torch.randn(layer.num_layers * (1 + layer.bidirectional), 1, 4))
        self.has_state = has_state

    def forward(self, x: Any, lengths: Any) -> Any:
        """Return all states, padded, the last ones, and the lengths."""
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.is_sorted)
        state = self.begin.expand(-1, x.shape[0], -1).contiguous()
        begin = (state, state * 2) if isinstance(self.layer, nn.LSTM) else state
        found, last = self.layer(packed, begin) if self.has_state else self.layer(packed)
        total = x.shape[1] if self.is_whole else None
        padded, counts = pad_packed_sequence(found, batch_first=True, padding_value=-7.0, total_length=total)
        return padded, last, counts


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("layer", "is_sorted", "is_whole", "has_state"),
    [
        (nn.LSTM(3, 4, 2, bidirectional=True), False, True, True),
        (nn.GRU(3, 4, bidirectional=True), False, False, True),
        (nn.LSTM(3, 4, bias=False), True, False, False),
        (nn.RNN(3, 4, 2), False, True, False),
    ],
)
def test_packed(layer: Any, is_sorted: bool, is_whole: bool, has_state: bool) -> None:
    torch.manual_seed(0)
    module = Packed(layer, is_sorted, is_whole, has_state).eval()

    def args(rows: int, length: int) -> tuple[Any, Any]:
        lengths = torch.randint(1, length + 1, (rows,))
        return torch.randn(rows, length, 3), lengths.sort(descending=True)[0] if is_sorted else lengths

    program = dietcode.export(module, args(3, 5), dynamic_shapes=({0: B, 1: L}, {0: B}))
    graph, weights = imported(program)
    for size in ((1, 1), (6, 9), (5, 2), (1, 9)):
        assert_same(module, graph, weights, args(*size))
    assert torch.nn.utils.rnn._VF._pack_padded_sequence.__name__ == "_pack_padded_sequence"


class Projected(nn.Module):
    """An LSTM whose states are narrower than its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 7, 2, proj_size=4, bidirectional=True)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        """Return what it gives from zeros, and from given states."""
        return self.layer(x), self.layer(x, (h, c))


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
def test_projected_states() -> None:
    torch.manual_seed(0)
    module = Projected().eval()

    def args(rows: int, length: int) -> tuple[Any, ...]:
        return torch.randn(length, rows, 3), torch.randn(4, rows, 4), torch.randn(4, rows, 7)

    program = dietcode.export(module, args(3, 5), dynamic_shapes=({0: L, 1: B}, {1: B}, {1: B}))
    graph, weights = imported(program)
    for size in ((1, 1), (6, 9), (2, 4)):
        assert_same(module, graph, weights, args(*size))


class Longer(nn.Module):
    """Sequences that are padded to more steps than they came with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4, 2, batch_first=True)

    def forward(self, x: Any, lengths: Any) -> Any:
        """Return all states, padded, and the last ones."""
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found, last = self.layer(packed)
        return pad_packed_sequence(found, True, padding_value=2.0, total_length=12)[0], last


def test_a_total_length_beyond_the_input_and_nan_past_the_ends() -> None:
    torch.manual_seed(0)
    module = Longer().eval()

    def args(rows: int, length: int) -> tuple[Any, Any]:
        lengths = torch.randint(1, length + 1, (rows,))
        x = torch.randn(rows, length, 3)
        x[torch.arange(length) >= lengths[:, None]] = float("nan")
        return x, lengths

    program = dietcode.export(module, args(3, 5), dynamic_shapes=({0: B, 1: L}, {0: B}))
    graph, weights = imported(program)
    for size in ((1, 1), (6, 9), (5, 2), (1, 9)):
        assert_same(module, graph, weights, args(*size))
