"""``dietcode::recurrent``: LSTM, GRU and RNN as one operator whose length may be dynamic. Needs PyTorch.

PyTorch's own operators unroll the steps of the example in an export, which makes the length constant.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

CELLS = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
_SHUT = 1e4  # a gate's input that leaves nothing of what else it is given: sigmoid is 0 or 1 exactly
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


def zero_states(module: Any, x: Any, batch: Any) -> list[Any]:
    """Return the states that a layer begins with where it is given none."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    widths = [module.hidden_size] * (2 if module.mode == "LSTM" else 1)
    widths[0] = getattr(module, "proj_size", 0) or widths[0]
    return [x.new_zeros(count, batch, width) for width in widths]


def packed_forward(module: Any, cell: str, packed: Any, hx: Any) -> Any:
    """Return the packed sequence and the last states of a packed sequence, as `pack` makes them.

    All rows have all steps. A step past a row's end comes with a feature of its own, which closes the input
    gate of an LSTM and opens its forget gate, so that the cell keeps what it holds; the last h is that of a
    row's last step. The direction backwards goes forwards over rows that are turned round, each within its
    length.
    """
    x, lengths = packed.data, row_lengths(packed)
    directions = 2 if module.bidirectional else 1
    states = zero_states(module, x, x.shape[1]) if hx is None else list(hx) if cell == "lstm" else [hx]
    if packed.sorted_indices is not None and hx is not None:
        states = [one.index_select(1, packed.sorted_indices) for one in states]
    steps = torch.arange(x.shape[0])[:, None]
    is_past = (steps >= lengths)[..., None]
    turned = torch.where(is_past[..., 0], steps, lengths - 1 - steps)[..., None]
    each = len(module._flat_weights) // (module.num_layers * directions)
    ends: list[list[Any]] = [[] for _ in states]
    for layer in range(module.num_layers):
        outputs = []
        x = x.masked_fill(is_past, 0.0)  # whatever is past a row's end, NaN too, reaches no cell
        for direction in range(directions):
            number = layer * directions + direction
            own = list(module._flat_weights[number * each : (number + 1) * each])
            rows = x.gather(0, turned.expand(-1, -1, x.shape[2])) if direction else x
            if cell == "lstm":
                kept = rows.new_zeros(4, module.hidden_size)
                kept[0], kept[1] = -_SHUT, _SHUT
                own[0] = torch.cat([own[0], kept.reshape(-1, 1)], 1)
                rows = torch.cat([rows, is_past.to(rows.dtype)], 2)
            begin = [one[number : number + 1] for one in states]
            y, *last = recurrent(rows, begin, own, module.bias, 1, False, False, cell)
            width = y.shape[2]
            last[0] = y.gather(0, (lengths - 1)[None, :, None].expand(-1, -1, width))
            outputs.append(y.gather(0, turned.expand(-1, -1, width)) if direction else y)
            for end, one in zip(ends, last, strict=True):
                end.append(one)
        x = torch.cat(outputs, 2)
    found = [torch.cat(end) for end in ends]
    if packed.unsorted_indices is not None:
        found = [one.index_select(1, packed.unsorted_indices) for one in found]
    return packed._replace(data=x), tuple(found) if cell == "lstm" else found[0]


def row_lengths(packed: Any) -> Any:
    """Return the length of each row of what `pack` made, the longest first."""
    rows = torch.arange(packed.data.shape[1])
    return (packed.batch_sizes[:, None] > rows).sum(0)


def pack(input: Any, lengths: Any, batch_first: bool) -> tuple[Any, Any]:
    """Return what stands for a packed sequence in an export: padded rows [l, b, …], and each step's rows.

    In the place of PyTorch's own function, which lets each step follow the one before it without padding, in
    as many rows as values say.
    """
    x = input.transpose(0, 1) if batch_first else input
    longest = lengths.max().item()
    torch._check(longest >= 1)
    torch._check(longest <= x.shape[0])
    if isinstance(x.shape[0], torch.SymInt):  # PyTorch compares a constant total_length with this alone
        most = x.shape[0].node.shape_env.bound_sympy(x.shape[0].node.expr).upper
        if most.is_Integer:
            torch._check(longest <= int(most))
    return x, (lengths > torch.arange(longest)[:, None]).sum(1)


def pad(data: Any, batch_sizes: Any, batch_first: bool, value: float, length: Any) -> tuple[Any, Any]:
    """Return the padded rows of what `pack` made, with a value past their ends, and their lengths."""
    lengths = (batch_sizes[:, None] > torch.arange(data.shape[1])).sum(0)
    if statically_known_true(length <= data.shape[0]):
        x = data[:length]
    else:  # more steps than there are: those of the last one, which are past all ends
        x = data.index_select(0, torch.arange(length).clamp(max=data.shape[0] - 1))
    is_past = torch.arange(x.shape[0])[:, None] >= lengths
    x = x.masked_fill(is_past.reshape(*is_past.shape, *[1] * (x.dim() - 2)), value)
    return x.transpose(0, 1) if batch_first else x, lengths


def replaced_forward(module: Any) -> Any:
    """Return what a layer does instead of its own forward while it is exported."""
    cell = _MODES[module.mode]

    def forward(input: Any, hx: Any = None) -> Any:
        if not isinstance(input, torch.Tensor):
            return packed_forward(module, cell, input, hx)
        alone = input.dim() == 2
        x = input.unsqueeze(0 if module.batch_first else 1) if alone else input
        if hx is None:
            batch = x.shape[0 if module.batch_first else 1]
            states = zero_states(module, x, batch)
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
