"""``dietcode::recurrent``: LSTM, GRU and RNN as one operator whose length may be dynamic. Needs PyTorch.

PyTorch's own operators unroll the steps of the example in an export, which makes the length constant.
"""

from __future__ import annotations

from typing import Any

import torch

from dietcode.errors import ModelError

CELLS = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
_MODES = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


@torch.library.custom_op("dietcode::recurrent", mutates_args=())  # type: ignore[untyped-decorator, unused-ignore]
def recurrent(
    input: torch.Tensor,
    hx: list[torch.Tensor],
    params: list[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    cell: str,
) -> list[torch.Tensor]:
    """Return the sequence [l, b, h], or [b, l, h], and the last states, as the layers of ``torch.nn`` do."""
    options = (params, has_biases, num_layers, 0.0, False, bidirectional, batch_first)
    if cell == "lstm":
        return [one.clone() for one in torch._VF.lstm(input, hx, *options)]
    return [one.clone() for one in getattr(torch._VF, cell)(input, hx[0], *options)]


@recurrent.register_fake  # type: ignore[untyped-decorator, unused-ignore]
def _fake(
    input: torch.Tensor,
    hx: list[torch.Tensor],
    params: list[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    cell: str,
) -> list[torch.Tensor]:
    width = hx[0].shape[2] * (2 if bidirectional else 1)
    return [input.new_empty(*input.shape[:2], width), *(torch.empty_like(one) for one in hx)]


def replaced_forward(module: Any) -> Any:
    """Return what a layer does instead of its own forward while it is exported.

    Raises
    ------
    ModelError
        The layer projects its states.
    """
    if module.proj_size:
        raise ModelError(f"nn.LSTM with proj_size={module.proj_size}; allowed: without projections")
    cell = _MODES[module.mode]

    def forward(input: Any, hx: Any = None) -> Any:
        if not isinstance(input, torch.Tensor):
            raise ModelError(
                "a packed sequence; allowed: padded ones, as tensors, with a mask where it matters"
            )
        alone = input.dim() == 2
        x = input.unsqueeze(0 if module.batch_first else 1) if alone else input
        directions = 2 if module.bidirectional else 1
        if hx is None:
            batch = x.shape[0 if module.batch_first else 1]
            zeros = x.new_zeros(module.num_layers * directions, batch, module.hidden_size)
            states = [zeros, zeros.clone()] if cell == "lstm" else [zeros]
        else:
            states = list(hx) if cell == "lstm" else [hx]
            states = [one.unsqueeze(1) for one in states] if alone else states
        sequence, *last = recurrent(
            *(x, states, module._flat_weights, module.bias, module.num_layers),
            *(module.bidirectional, module.batch_first, cell),
        )
        if alone:
            sequence = sequence.squeeze(0 if module.batch_first else 1)
            last = [one.squeeze(1) for one in last]
        return sequence, tuple(last) if cell == "lstm" else last[0]

    return forward
