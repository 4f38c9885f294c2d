"""Tensors changed at positions or brought to another size: imported graphs beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import assert_functions, assert_same, imported, torch
from kernel_runs import lowered, model_of

from dietcode.errors import ShapeError
from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.tensor_type import TensorType
from dietcode.models.exporting import export

F = torch.nn.functional
L = torch.export.Dim("L", min=3, max=64)
Function = Callable[..., Any]


def _images(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return (torch.randn(2, 6, size, 5),)


def _changed(x: Any) -> Any:
    x = x.clone()
    x[:, 1] = 3.0
    x[:, :, 1:3, 2] = x[:, :, :2, 0]
    x[x < -1] = 0.5
    return x


RESIZED: dict[str, list[Function]] = {
    "interpolated": [
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=(0.5, 1.25), mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=1.5),
        lambda x: F.interpolate(x, scale_factor=(0.75, 0.3)),
        lambda x: F.interpolate(x, size=(7, 9)),
        lambda x: F.interpolate(x, size=(7, 9), mode="nearest-exact"),
        lambda x: F.interpolate(x[..., 0], scale_factor=3, mode="nearest-exact"),
        lambda x: F.interpolate(x, scale_factor=(3, 2), mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x, size=(7, 11), mode="bilinear"),
        lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x[..., 0], scale_factor=3, mode="linear"),
        lambda x: F.interpolate(x, scale_factor=(1.5, 0.5), mode="bicubic"),
        lambda x: F.interpolate(x, size=(5, x.shape[3] + 2), mode="bicubic"),
        lambda x: F.interpolate(x, size=(7, 1), mode="bicubic", align_corners=True),
        # Products that floats round. 1.3 makes 3 of 3 rows, 2.1 makes 6: PyTorch forgets the factor there.
        lambda x: F.interpolate(x, scale_factor=(1.3, 1.1), mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=(1.3, 2.1)),
        lambda x: F.interpolate(x, scale_factor=(2.1, 1.3)),
        lambda x: F.interpolate(x, scale_factor=(2.1, 0.7), mode="nearest-exact"),
        lambda x: F.interpolate(x, scale_factor=(1.3, 0.37), mode="bicubic"),
        lambda x: F.interpolate(x[..., 0], scale_factor=1.3),
        lambda x: F.interpolate(x[..., 0], scale_factor=2 / 3, mode="linear"),
    ],
    "padded": [
        lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
        lambda x: F.pad(x, (0, 3, 4, 0), mode="replicate"),
        lambda x: F.pad(x, (1, 2, 2, 3), mode="circular"),
        lambda x: F.pad(x[0], (2, 1), mode="reflect"),
        lambda x: F.pad(x, (1, -1, 0, 2), value=0.5),
    ],
    "windows": [
        lambda x: x.unfold(2, 3, 2),
        lambda x: x.unfold(3, 2, 3),
        lambda x: F.unfold(x, (2, 3), padding=(1, 0), stride=(2, 1)),
        lambda x: F.unfold(x, 2, dilation=(1, 2)),
    ],
    "transposed convolutions": [
        lambda x: F.conv_transpose2d(x, torch.ones(6, 2, 3, 2) * 0.1, torch.ones(2), stride=2, padding=1),
        lambda x: F.conv_transpose2d(x, torch.arange(72.0).view(6, 2, 3, 2), groups=2, dilation=(2, 1)),
        lambda x: F.conv_transpose2d(x, torch.arange(72.0).view(6, 3, 2, 2), torch.ones(3), stride=2),
        lambda x: F.conv_transpose2d(x, torch.ones(6, 1, 2, 3), stride=(2, 3), output_padding=(1, 0)),
        lambda x: F.conv_transpose1d(x[0, :, :, 0], torch.arange(36.0).view(6, 2, 3), stride=3),
        lambda x: F.conv_transpose1d(x[..., 0], torch.arange(24.0).view(6, 2, 2), stride=3, padding=2),
    ],
    "orders": [
        lambda x: x.median(2).values,
        lambda x: x.median(-1, keepdim=True).values,
        lambda x: torch.cdist(x, x[:, :, :2], compute_mode="donot_use_mm_for_euclid_dist"),
        lambda x: torch.cdist(x[0, 0], x[0, 1], p=1.0),
        lambda x: x[0, 0, :3, :4][torch.tril_indices(3, 4, 1)[0], torch.tril_indices(3, 4, 1)[1]],
        lambda x: x[0, 0, :3, :4][tuple(torch.triu_indices(3, 4, -1))],
        lambda x: torch.asin(torch.tanh(x)) + torch.acos(torch.tanh(x)) * torch.atan(x),
        lambda x: torch.sinh(x) - torch.cosh(x) / torch.exp2(x) + torch.erfc(x),
        _changed,
    ],
}


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("name", RESIZED)
def test_other_sizes(name: str) -> None:
    assert_functions(RESIZED[name], _images, [{2: L}], (3, 4, 8, 13))


def _rows(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    order = torch.randperm(size)
    return torch.randn(size, 4), order, torch.randn(size, 4)


def _every_second(x: Any, at: Any, v: Any) -> Any:
    x = x.clone()
    x[1:3:2] = v[1:3:2]
    x[:, 0::2] = v[:, 2:]
    return x


PUT: list[Function] = [
    lambda x, at, v: x.index_put((at,), v),
    lambda x, at, v: x.index_put((at // 2,), v, accumulate=True),
    lambda x, at, v: x.index_put((at // 2, at % 4), v[:, 0], accumulate=True),
    lambda x, at, v: x.T.index_put((torch.tensor([1, 0]),), v[:, :2].T),
    lambda x, at, v: x.index_copy(0, at, v),
    lambda x, at, v: x.index_add(0, at // 2, v, alpha=2.0),
    lambda x, at, v: x.T.index_add(1, at // 2, v.T),
    lambda x, at, v: x.scatter(1, (at % 4)[:, None], v),
    lambda x, at, v: x.scatter(0, (at // 2)[:, None].expand(-1, 4), 0.25),
    lambda x, at, v: torch.zeros_like(x).scatter_add(0, (at // 2)[:, None].expand(-1, 3), v),
    lambda x, at, v: x.scatter_reduce(0, (at // 2)[:, None].expand(-1, 4), v, "amax"),
    lambda x, at, v: x.scatter_reduce(0, (at // 2)[:, None].expand(-1, 4), v, "prod"),
    lambda x, at, v: x.index_put((x > 0,), torch.tensor(2.0)),
    lambda x, at, v: x.index_put((at > 1,), v[0]),
    lambda x, at, v: x.index_put((x > 0,), v[x > 0]),
    lambda x, at, v: x.index_put((at > 1,), v[at > 1] * 2, accumulate=True),
    lambda x, at, v: x.put(at, v[:, 0]),
    lambda x, at, v: x.put(at // 2, v[:, 0], accumulate=True),
    lambda x, at, v: x.T.index_fill(1, torch.tensor([0, 2]), -1.5),
    lambda x, at, v: x[:3].diagonal_scatter(v[0, :3], 1),
    lambda x, at, v: torch.stack([x, v]).diagonal_scatter(v[:, :2], 1, 0, 2),
    lambda x, at, v: torch.narrow_copy(x, 1, 1, 2),
    _every_second,
]


def test_positions_that_are_written() -> None:
    assert_functions(PUT, _rows, [{0: L}, {0: L}, {0: L}], (3, 4, 13))


def test_bags_and_bilinear_layers() -> None:
    torch.manual_seed(0)

    class Bags(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sums = torch.nn.EmbeddingBag(7, 4, mode="sum")
            self.means = torch.nn.EmbeddingBag(7, 3)
            self.both = torch.nn.Bilinear(4, 3, 5)

        def forward(self, positions: Any, offsets: Any, weights: Any) -> Any:
            sums = self.sums(positions, offsets, weights)
            return self.both(sums, self.means(positions, offsets)), sums

    def example(bags: int) -> tuple[Any, ...]:
        offsets = torch.arange(bags) * 2 + (torch.arange(bags) > 1)
        return torch.randint(0, 7, (3 * bags,)), offsets, torch.rand(3 * bags)

    module, bags = Bags().eval(), torch.export.Dim("bags", min=2, max=9)
    program = export(module, example(5), dynamic_shapes=({0: 3 * bags}, {0: bags}, {0: 3 * bags}))
    graph, weights = imported(program)
    for size in (2, 3, 9):
        assert_same(module, graph, weights, example(size))
    positions, offsets, shares = example(3)
    model = model_of(lowered(graph), weights)
    # PyTorch refuses what lies before the first bag, too.
    with pytest.raises(ShapeError, match=r"models/test_scattering_import\.py:\d+: .* of 3 elements"):
        model(positions, offsets + 1, shares)


@pytest.mark.parametrize("function", ["tanh", "relu"])
def test_a_plain_recurrent_layer_is_one_kernel_a_step(function: str) -> None:
    module = torch.nn.RNN(5, 6, nonlinearity=function).eval()
    program = export(module, (torch.randn(9, 2, 5),), dynamic_shapes=({0: L},))
    graph, weights = imported(program)
    made = lowered(graph)
    assert [step["repeat"]["carried"] for step in made.description["steps"] if "repeat" in step] == [{"H": 0}]
    model = model_of(made, weights)
    for size in (3, 12):
        x = torch.randn(size, 2, 5)
        with torch.no_grad():
            for own, right in zip(model(x), module(x), strict=True):
                torch.testing.assert_close(own, right)


def test_a_model_of_one_shape_runs_in_kernels() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.Linear(8, 6), torch.nn.Softmax(-1)]
    module, x = torch.nn.Sequential(*layers).eval(), torch.randn(7, 5)
    graph, weights = imported(export(module, (x,)))
    made = lowered(graph)
    assert not [step for step in made.description["steps"] if "host" in step and not step.get("view")]
    assert all(list(spec["shape_vars"].values()) == [{"min": 7, "max": 7}] for spec in made.specs.values())
    with torch.no_grad():
        torch.testing.assert_close(model_of(made, weights)(x), module(x))


@pytest.mark.long
def test_a_decoder_with_a_mask() -> None:
    layer = torch.nn.TransformerDecoderLayer(16, 2, 24, batch_first=True)

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = torch.nn.TransformerDecoder(layer, 1)

        def forward(self, x: Any, memory: Any) -> Any:
            mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.decoder(x, memory, tgt_mask=mask)

    module, looks = Decoder().eval(), torch.nn.modules.transformer._detect_is_causal_mask
    program = export(module, (torch.ones(1, 9, 16), torch.ones(1, 5, 16)), dynamic_shapes=({1: L}, None))
    assert torch.nn.modules.transformer._detect_is_causal_mask is looks
    graph, weights = imported(program)
    for size in (3, 17):
        assert_same(module, graph, weights, (torch.randn(1, size, 16), torch.randn(1, 5, 16)))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_gather_along_either_axis_of_a_table(axis: int) -> None:
    """What a kernel gathers are rows of a matrix; along other axes the host does it."""
    graph = Graph("gather", {"L": (1, 8)})
    length = Extent.of("L")
    table = graph.add_input("table", TensorType("float32", (Extent.of(6), Extent.of(6))))
    positions = graph.add_input("positions", TensorType("int64", (length,)))
    taken = graph.add("take", table, positions, axis=axis)
    shape = (length, Extent.of(6)) if axis == 0 else (Extent.of(6), length)
    other = graph.add_input("other", TensorType("float32", shape))
    graph.outputs = [graph.add("relu", graph.add("add", taken, other))]
    names = ["table", "positions", "other"]
    graph.signature = {"positional": names, "keyword": {}, "output": "*"}
    model, rng = model_of(lowered(graph), {}), np.random.default_rng(0)
    for size in (1, 6, 8):
        x, at = rng.standard_normal((6, 6), np.float32), rng.integers(0, 6, size)
        more = rng.standard_normal((size, 6) if axis == 0 else (6, size)).astype(np.float32)
        np.testing.assert_allclose(model(x, at, more), np.maximum(np.take(x, at, axis) + more, 0), atol=1e-6)
