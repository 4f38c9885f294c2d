"""Products, norms, reductions, windows and recurrent layers: imported graphs beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import assert_functions, assert_same, exported, imported, torch
from needs import ODD_WINDOWS, needs_torch

F = torch.nn.functional
L = torch.export.Dim("L", min=1, max=64)
H = torch.export.Dim("H", min=8, max=64)
Function = Callable[..., Any]


def _seeded(module: Any) -> Any:
    torch.manual_seed(0)
    for one in [*module.parameters(), *module.buffers()]:
        if one.is_floating_point():
            torch.nn.init.uniform_(one, 0.1, 1.0)
    return module


REDUCTIONS: list[Function] = [
    lambda x: x.sum(),
    lambda x: x.sum(1),
    lambda x: x.sum((0, 2), keepdim=True),
    lambda x: x.mean(-1),
    lambda x: x.mean(),
    lambda x: x.prod(2),
    lambda x: x.amax((0, 1)),
    lambda x: x.amin(1, keepdim=True),
    lambda x: x.max(),
    lambda x: x.min(),
    lambda x: tuple(x.max(1)),
    lambda x: tuple(x.min(2, keepdim=True)),
    lambda x: x.argmax(1),
    lambda x: x.argmin(),
    lambda x: x.argmax(2, keepdim=True),
    lambda x: x.var(),
    lambda x: x.var(2),
    lambda x: x.var((1, 2), unbiased=False),
    lambda x: x.std(2, keepdim=True, correction=0),
    lambda x: (x[:, :2].std(), torch.var(x, (0, 2), correction=1)),
    lambda x: x.norm(),
    lambda x: x.norm(dim=1),
    lambda x: torch.linalg.vector_norm(x, 1, dim=(1, 2)),
    lambda x: torch.linalg.vector_norm(x, float("inf"), dim=2),
    lambda x: torch.linalg.vector_norm(x, 3, dim=2),
    lambda x: torch.linalg.vector_norm(x.round(), 0, dim=(0, 2), keepdim=True),
    lambda x: torch.linalg.vector_norm(x, -float("inf"), dim=1),
    lambda x: torch.dist(x, x * 2, 3),
    lambda x: torch.var_mean(x, 2),
    lambda x: torch.std_mean(x, (0, 1), correction=0, keepdim=True),
    lambda x: x.kthvalue(2, 1).values,
    lambda x: x.kthvalue(2, 2, keepdim=True).values,
    lambda x: F.normalize(x, dim=2),
    lambda x: x.logsumexp(2),
    lambda x: x.logsumexp((1, 2), keepdim=True),
    lambda x: x.where(x > 0.5, -torch.inf).logsumexp(2),
    lambda x: torch.full_like(x, -torch.inf).logsumexp((1, 2)),
    lambda x: x.where(x < 0.5, torch.inf).logsumexp(1),
    lambda x: torch.full_like(x, torch.finfo(x.dtype).min).logsumexp(2),
    lambda x: x.where(x < 0.5, 3e38).logsumexp(1),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(-1),
    lambda x: (*torch.cummax(x, 1),),
    lambda x: (*torch.cummin(x.round(), 0),),
    lambda x: (x > 0).cumsum(0),
    lambda x: F.softmax(x, -1),
    lambda x: F.softmax(x, 1, dtype=torch.float64),
    lambda x: F.log_softmax(x, 2),
    lambda x: (x > 0).any() & (x > 9).all(),
    lambda x: (x > 0).any(1),
    lambda x: (x > 0).all((1, 2)),
    lambda x: x.long().sum(1),
    lambda x: x.int().sum(1, dtype=torch.int32),
]


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("part", [0, 1, 2])
def test_reductions(part: int) -> None:
    def tensors(size: int) -> tuple[Any, ...]:
        torch.manual_seed(size)
        return (torch.randn(3, 4, size),)

    assert_functions(REDUCTIONS[part::3], tensors, [{2: L}], sizes=(2, 3, 8, 13))


def test_norms() -> None:
    modules = [
        torch.nn.LayerNorm(6),
        torch.nn.LayerNorm((4, 6), eps=1e-3),
        torch.nn.LayerNorm(6, elementwise_affine=False),
        torch.nn.LayerNorm(6, bias=False),
        torch.nn.RMSNorm(6),
        torch.nn.RMSNorm((4, 6), eps=1e-3, elementwise_affine=False),
        torch.nn.GroupNorm(2, 4),
        torch.nn.GroupNorm(4, 4, affine=False),
        torch.nn.BatchNorm1d(4),
        torch.nn.BatchNorm1d(4, affine=False),
        torch.nn.InstanceNorm1d(4, affine=True),
    ]
    functions: list[Function] = [_seeded(one).eval() for one in modules]
    functions.append(lambda x: F.layer_norm(x, (6,), None, torch.arange(6.0)))
    assert_functions(functions, lambda size: (torch.randn(size, 4, 6),), [{0: L}])


def test_batch_norm_by_the_batch_s_own_statistics() -> None:
    norm = _seeded(torch.nn.BatchNorm1d(4, track_running_stats=False)).eval()
    plain = torch.nn.BatchNorm1d(4, affine=False, track_running_stats=False).eval()
    assert_functions(
        [norm, plain, lambda x: norm(x[..., 0])],
        lambda size: (torch.randn(size, 4, 3) + 5,),
        [{0: L}],
        sizes=(2, 7),
    )


def test_batch_norm_of_images() -> None:
    norm = _seeded(torch.nn.BatchNorm2d(4)).eval()
    assert_functions([norm], lambda size: (torch.randn(2, 4, size, 3),), [{2: L}])


PRODUCTS: list[Function] = [
    lambda x, y: x @ y,
    torch.bmm,
    lambda x, y: x[0] @ y[0],
    lambda x, y: torch.mm(x[0], y[1]),
    lambda x, y: torch.mv(x[0], y[0, :, 0]),
    lambda x, y: torch.dot(x[0, 0], y[0, :, 0]),
    lambda x, y: x[0, 0] @ y,
    lambda x, y: torch.addmm(x[0] @ y[0], x[0], y[0], beta=0.5, alpha=2),
    lambda x, y: torch.baddbmm(x[:, :1] @ y, x, y),
    lambda x, y: torch.baddbmm(x[:, :1] @ y * torch.nan, x, y, beta=0),
    lambda x, y: torch.addmv(x[0, :, 0], x[0], y[0, :, 0], beta=0.5, alpha=2),
    lambda x, y: torch.addbmm(x[0] @ y[0], x, y, beta=2, alpha=0.5),
    lambda x, y: torch.einsum("blk,bkn->nlb", x, y),
    lambda x, y: torch.einsum("blk,bln->kn", x, x),
    lambda x, y: torch.outer(x[0, 0], y[0, 0]),
    lambda x, y: F.linear(x, y[0].T, y[0, 0]),
    lambda x, y: F.linear(x, y[0].T),
    lambda x, y: F.linear(x[0, 0], y[0].T),
    lambda x, y: torch.tensordot(x, y, dims=([2], [1])),
]


def test_products() -> None:
    def tensors(size: int) -> tuple[Any, ...]:
        torch.manual_seed(size)
        return torch.randn(2, size, 5), torch.randn(2, 5, 4)

    assert_functions(PRODUCTS, tensors, [{1: L}, {}])


ATTENTION: list[Function] = [
    lambda q, k, mask: F.scaled_dot_product_attention(q, k, k),
    lambda q, k, mask: F.scaled_dot_product_attention(q, k, k, is_causal=True),
    lambda q, k, mask: F.scaled_dot_product_attention(q, k, k, mask),
    lambda q, k, mask: F.scaled_dot_product_attention(q, k, k, mask > 0.3),
    lambda q, k, mask: F.scaled_dot_product_attention(q, k, k, scale=0.5),
    lambda q, k, mask: F.scaled_dot_product_attention(q, k[:, :2], k[:, 2:], enable_gqa=True),
    lambda q, k, mask: F.scaled_dot_product_attention(q, k[:, :1], k[:, 1:2]),
    lambda q, k, mask: F.scaled_dot_product_attention(q[:, 0], k[:, 0], k[:, 1]),
]


def test_attention() -> None:
    def tensors(size: int) -> tuple[Any, ...]:
        torch.manual_seed(size)
        mask = torch.randn(2, 1, 7, size)
        mask[0, 0, 2] = -1.0  # as a mask of truth values it hides the whole row
        return torch.randn(2, 4, 7, 8), torch.randn(2, 4, size, 8), mask

    assert_functions(ATTENTION, tensors, [{}, {2: L}, {3: L}])


@pytest.mark.long
def test_attention_of_a_module() -> None:
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    assert_functions(
        [lambda x: module(x, x, x), lambda x: module(x, x, x, need_weights=False)[0], layer],
        lambda size: (torch.randn(2, size, 8),),
        [{1: L}],
    )


CONVOLUTIONS: list[Any] = [
    torch.nn.Conv2d(6, 4, 3),
    torch.nn.Conv2d(6, 4, 3, padding=1, stride=2, bias=False),
    torch.nn.Conv2d(6, 6, 3, padding=1, groups=6),
    torch.nn.Conv2d(6, 8, (3, 2), padding=(2, 1), groups=2, dilation=(2, 1), stride=(1, 2)),
    torch.nn.Conv2d(6, 4, 1),
    torch.nn.Conv2d(6, 4, (3, 4), padding="same"),
    torch.nn.Conv2d(6, 4, 3, padding="valid"),
    torch.nn.MaxPool2d(2),
    torch.nn.MaxPool2d(3, 2, 1),
    torch.nn.MaxPool2d(3, 1, 1, dilation=2),
    torch.nn.AvgPool2d(2),
    torch.nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.AdaptiveMaxPool2d(1),
]


@needs_torch("2.11", ODD_WINDOWS)
@pytest.mark.parametrize("part", [0, 1])
def test_windows(part: int) -> None:
    functions = [_seeded(one).eval() for one in CONVOLUTIONS[part::2]]
    assert_functions(
        functions, lambda size: (torch.randn(2, 6, size, 9),), [{2: H}], sizes=(8, 9, 10, 11, 12, 13)
    )


def test_windows_of_sequences() -> None:
    modules = [
        torch.nn.Conv1d(4, 6, 3, padding=1),
        torch.nn.Conv1d(4, 4, 3, stride=2, groups=4),
        torch.nn.Conv1d(4, 6, 3, padding="same", dilation=2),
        torch.nn.AvgPool1d(2),
        torch.nn.AdaptiveAvgPool1d(1),
        torch.nn.AdaptiveMaxPool1d(1),
        torch.nn.Upsample(scale_factor=3),
    ]
    functions: list[Function] = [_seeded(one).eval() for one in modules]
    functions.append(lambda x: functions[0](x[0]))
    assert_functions(functions, lambda size: (torch.randn(2, 4, size),), [{2: H}], sizes=(8, 9, 10, 11))


def test_windows_of_constant_extents() -> None:
    functions = [
        torch.nn.AdaptiveAvgPool2d((4, 3)),
        _seeded(torch.nn.Conv3d(3, 2, 2, padding=1)),
    ]
    assert_functions(functions[:1], lambda size: (torch.randn(size, 3, 8, 9),), [{0: L}])
    assert_functions(functions[1:], lambda size: (torch.randn(size, 3, 4, 5, 6),), [{0: L}])


@pytest.mark.parametrize("extent", [9, *(pytest.param(more, marks=pytest.mark.long) for more in (8, 10, 11))])
def test_last_windows_that_reach_beyond(extent: int) -> None:
    """PyTorch drops a last window that would begin in what is put behind the data."""
    functions = [
        torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        torch.nn.AvgPool2d((2, 3), ceil_mode=True, count_include_pad=False),
        torch.nn.AvgPool2d(2, 3, 1, ceil_mode=True),
        torch.nn.MaxPool2d(2, 3, 1, ceil_mode=True),
    ]
    assert_functions(
        functions, lambda size: (torch.randn(size, 2, extent, extent + 1),), [{0: L}], sizes=(1, 4)
    )
    flat = [torch.nn.MaxPool1d(3, 2, 1), torch.nn.AvgPool1d(3, 2, 1, ceil_mode=True)]
    assert_functions(flat, lambda size: (torch.randn(size, 2, extent),), [{0: L}], sizes=(1, 4))


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_layers_of_a_constant_length(kind: str, layers: int) -> None:
    """What PyTorch exports by itself: its own operator, where the length is constant."""
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(5, 6, layers, bidirectional=layers == 2, batch_first=layers == 2)
    args = (torch.randn(4, 4, 5),)
    graph, weights = imported(exported(module, args))
    assert any(node.operator == "recurrent" for node in graph.nodes)
    assert_same(module, graph, weights, args)


@pytest.mark.parametrize("depth", [64, 3000])
def test_products_of_signed_bytes_are_exact(depth: int) -> None:
    """As of linear layers whose activations are quantized too: kernels compute them in float32."""
    torch.manual_seed(0)
    weight = torch.randint(-128, 128, (5, depth), dtype=torch.int8)
    graph = assert_functions(
        [lambda x: x.int() @ weight.int().T, lambda x: torch._int_mm(x, weight.T.contiguous())],
        lambda size: (torch.randint(-128, 128, (size, depth), dtype=torch.int8),),
        [{0: L}],
    )
    products = [node for node in graph.nodes if node.operator == "matmul"]
    assert {graph.types[node.result].dtype for node in products} == {"float32"}
