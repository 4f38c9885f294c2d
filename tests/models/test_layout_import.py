"""Shapes, slices, positions, orders and tensors that are made: imported graphs beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import assert_functions, torch

F = torch.nn.functional
L = torch.export.Dim("L", min=2, max=64)
Function = Callable[..., Any]
SIZES = (2, 3, 8, 13)


def _tensor(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return (torch.randn(3, size, 4),)


SHAPES: dict[str, list[Function]] = {
    "shapes": [
        lambda x: x.view(3, -1),
        lambda x: x.reshape(-1),
        lambda x: x.reshape(-1, 2, x.shape[1], 2),
        lambda x: x.flatten(),
        lambda x: x.flatten(1),
        lambda x: x.flatten(0, 1),
        lambda x: x.unflatten(2, (2, 2)),
        lambda x: x.unflatten(-1, (-1, 2)),
        lambda x: x.unsqueeze(0),
        lambda x: x.unsqueeze(-1).squeeze(-1),
        lambda x: x[:1].squeeze(),
        lambda x: x[:1, :, :1].squeeze((0, 2)),
        lambda x: x.squeeze(0),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.permute(-1, 1, 0),
        lambda x: x.transpose(0, -1),
        lambda x: x[0].t(),
        lambda x: x.mT,
        lambda x: x[0].T,
        lambda x: x.movedim(0, 2),
        lambda x: x.transpose(1, 2).reshape(3, -1),
    ],
    "copies": [
        lambda x: x[:1].expand(5, -1, 4),
        lambda x: x[:, :1].expand(3, x.shape[1], 4),
        lambda x: x[:1].expand(2, 3, x.shape[1], 4),
        lambda x: x[:1].expand_as(x),
        lambda x: x.repeat(2, 1, 3),
        lambda x: x.repeat(2, 1, 1, 1),
        lambda x: x.tile(2),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.repeat_interleave(3),
        lambda x: torch.broadcast_to(x[0, 0], (x.shape[1], 4)),
        lambda x: torch.cat([x, x * 2], 1),
        lambda x: torch.cat([x, x.long()], -1),
        lambda x: torch.cat([torch.zeros(0), x[0, 0]]),
        lambda x: torch.stack([x, x, x]),
        lambda x: torch.stack([x, x * 2], -1),
        lambda x: torch.hstack([x, x]),
        lambda x: torch.diagonal(x, 1, 0, 2),
        lambda x: torch.diagonal(x @ x.mT, -1, -2, -1),
        lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])),
        lambda x: torch.searchsorted(x.sort(-1).values, x * 2, right=True),
        lambda x: torch.arange(x.shape[1] - 1, -x.shape[1], -1.0),
        lambda x: torch.atan2(x, x.flip(0)) + torch.hypot(x, x.flip(2)),
        lambda x: F.max_pool2d(x, 2, 1, return_indices=True)[0],
        lambda x: x.flip(1),
        lambda x: x.flip(0, -1),
        lambda x: x.roll(1, 2),
        lambda x: x.roll((1, -1), (0, 2)),
        lambda x: x.roll((2, -1), (1, 1)),
        lambda x: x[0, :, 0].roll(-2) + x.roll(2)[0, 0, 0],
        lambda x: F.interpolate(x[None], scale_factor=2),
        lambda x: F.interpolate(x[None], size=(x.shape[1] * 3, 4)),
        lambda x: F.pad(x, (1, 2)),
        lambda x: F.pad(x, (0, 0, 1, 1), value=3.0),
        lambda x: F.pad(x, (-1, 1)),
        lambda x: torch.constant_pad_nd(x, (1, 1), 2.0),
        lambda x: F.pad(x > 0, (1, 0), value=True),
    ],
    "slices": [
        lambda x: x[1],
        lambda x: x[-1],
        lambda x: x[:, -1],
        lambda x: x[:, :-1],
        lambda x: x[:, 1:],
        lambda x: x[:, -2:],
        lambda x: x[..., ::2],
        lambda x: x[:, ::2],
        lambda x: x[:, 1::3],
        lambda x: x[:, : x.shape[1] // 2],
        lambda x: x[:, x.shape[1] // 2 :],
        lambda x: x[:, None, 1:2],
        lambda x: x.narrow(1, 1, x.shape[1] - 1),
        lambda x: x.select(2, -2),
        lambda x: x.unbind(0),
        lambda x: x.chunk(2, 2),
        lambda x: x.split(2, 2),
        lambda x: x.split([1, 3], 2),
        lambda x: torch.tensor_split(x, 3, 2),
        lambda x: torch.split(x, x.shape[1] - 1, 1)[0],
    ],
    "positions": [
        lambda x: x[:, torch.tensor([1, 0])],
        lambda x: x[torch.tensor([1, -1, 0])],
        lambda x: x[..., torch.tensor([[1, 2], [3, -4]])],
        lambda x: x[torch.tensor([0, 1]), torch.tensor([1, 0])],
        lambda x: x[:, torch.tensor([0, 1]), torch.tensor([3, -1])],
        lambda x: x[torch.tensor([[0], [1]]), torch.tensor([1, 0])],
        lambda x: x.index_select(2, torch.tensor([1, 1, 3])),
        lambda x: x.gather(1, (x > 0).long()),
        lambda x: x.gather(2, torch.zeros(2, 1, 7, dtype=torch.int64)),
        lambda x: F.embedding((x[:, :, 0] > 0).long(), x[0]),
        lambda x: F.one_hot((x > 0).long(), 3),
    ],
    "orders": [
        lambda x: tuple(x.topk(2, 1)),
        lambda x: tuple(x.topk(3, largest=False)),
        lambda x: tuple(x.sort(1)),
        lambda x: tuple(torch.sort(x, stable=True, dim=2, descending=True)),
        lambda x: x.argsort(1),
        lambda x: x.argsort(1, descending=True),
        lambda x: x.tril(),
        lambda x: x.triu(1),
        lambda x: x.tril(-1),
    ],
    "new tensors": [
        lambda x: torch.zeros(3, x.shape[1]),
        lambda x: torch.ones(x.shape[1], 2, dtype=torch.int64),
        lambda x: torch.full((x.shape[1],), 2.5),
        lambda x: torch.full((2, x.shape[1]), float("-inf")).triu(1),
        lambda x: x.new_zeros(x.shape[1]) + x.new_ones(1) + x.new_full((1,), 3),
        lambda x: torch.zeros_like(x) + torch.ones_like(x) + torch.full_like(x, 0.5),
        lambda x: torch.empty_like(x).zero_() + x.new_empty(3, 1, 1).fill_(2.0),
        lambda x: torch.arange(x.shape[1]),
        lambda x: torch.arange(1, x.shape[1] + 2, 2),
        lambda x: torch.arange(0, 8, 2, dtype=torch.float32),
        lambda x: torch.arange(x.shape[1], 0, -1),
        lambda x: torch.arange(0.5, x.shape[1]) + torch.arange(x.shape[1] - 0.5, 0.0, -1.0),
        lambda x: torch.arange(-0.5, x.shape[1] + 0.7, 3),
        lambda x: torch.arange(0, 1, 1 / 8) * torch.arange(2.5, -1.5, -0.5),
        lambda x: torch.arange(4.0),
        lambda x: torch.scalar_tensor(2.0) + torch.tensor(3.0),
        lambda x: torch.tensor([1.0, 2.0]) * x.shape[1],
        lambda x: x / x.shape[1],
        lambda x: x * (x.shape[1] // 2 + 1),
        lambda x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(),
        lambda x: torch.arange(x.shape[1])[:, None] >= torch.arange(x.shape[1]),
        lambda x: torch.eye(4),
        lambda x: torch.linspace(0, 1, 5),
        lambda x: torch.meshgrid(torch.arange(3), torch.arange(x.shape[1]), indexing="ij"),
    ],
}


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    assert_functions(SHAPES[name], _tensor, [{1: L}], SIZES)


def test_several_dimensions() -> None:
    B = torch.export.Dim("B", min=1, max=9)

    def tensors(size: int) -> tuple[Any, ...]:
        torch.manual_seed(size)
        return torch.randn(size % 4 + 1, size, 4), torch.randn(size % 4 + 1, size + 1, 4)

    functions: list[Function] = [
        lambda x, y: torch.cat([x, y], 1),
        lambda x, y: torch.cat([x, y], 1).flatten(0, 1),
        lambda x, y: x @ y.mT,
        lambda x, y: x.reshape(x.shape[0] * x.shape[1], 4),
        lambda x, y: torch.cat([x, y], 1)[:, x.shape[1] :],
    ]
    M = torch.export.Dim("M", min=3, max=65)
    assert_functions(functions, tensors, [{0: B, 1: L}, {0: B, 1: M}], SIZES)
