"""Bags of rows, strides, masks that are filled, small numbers, complex buffers, and names that meet."""

from __future__ import annotations

from typing import Any

import pytest
from graph_runs import assert_functions, assert_same, imported, torch

from dietcode.errors import ModelError
from dietcode.graph.graph import Graph
from dietcode.graph.tensor_type import GraphError, TensorType
from dietcode.models.exporting import export

F = torch.nn.functional
L = torch.export.Dim("L", min=4, max=64)


def _rows(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return torch.randn(size, 5), torch.randn(size, 5) * 1e-5


def test_elements_at_strides_and_those_that_are_filled_in() -> None:
    functions = [
        lambda x, y: x.as_strided((x.shape[0] - 1, 2, 5), (5, 5, 1)).sum(1),
        lambda x, y: torch.as_strided(x, (3, x.shape[0]), (1, 5), 2),
        lambda x, y: torch.as_strided(x, (), (), 3),
        lambda x, y: x.masked_scatter(x > 0, y * 1e5),
        lambda x, y: x.masked_scatter(x[:, :1] > 0, y.flatten()),
    ]
    assert_functions(functions, _rows, [{0: L}, {0: L}], (4, 7, 13))


def test_a_view_by_strides_of_a_view_is_refused() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.T.as_strided((2, 2), (1, 2))

    with pytest.raises(ModelError, match="allowed: of a contiguous tensor"):
        imported(export(Module().eval(), (torch.randn(4, 5),)))


def test_small_numbers_keep_their_digits() -> None:
    """An absolute bound of 1e-4 of the largest element: all elements are about 1e-5."""
    functions = [
        lambda x, y: torch.log1p(y),
        lambda x, y: torch.expm1(y),
        lambda x, y: torch.sinh(y),
        lambda x, y: torch.asinh(y),
        lambda x, y: torch.atanh(y),
    ]
    assert_functions(functions, _rows, [{0: L}, {0: L}], (4, 9))


def test_large_and_infinite_numbers_stay_what_they_are() -> None:
    functions = [
        lambda x, y: torch.log1p(x.abs() * 1e30 * 1e30),
        lambda x, y: torch.log1p(torch.where(x > 0, x * 0 - 1, x.abs())),
        lambda x, y: torch.expm1(x * 1e3).clamp(max=1e30),
        lambda x, y: torch.sinh(x * 30),
        lambda x, y: torch.asinh(x * 1e10),
    ]
    assert_functions(functions, _rows, [{0: L}, {0: L}], (4, 9))


def test_logarithms_of_sums_so_far() -> None:
    functions = [
        lambda x, y: torch.logcumsumexp(x, 0),
        lambda x, y: torch.logcumsumexp(x * 200, 0),
        lambda x, y: torch.logcumsumexp(-x.abs().cumsum(0) * 300, 0),
        lambda x, y: torch.logcumsumexp(torch.where(x > 0.3, float("-inf"), x), -1),
    ]
    assert_functions(functions, _rows, [{0: L}, {0: L}], (4, 33, 64))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_with_rows_that_are_left_out(mode: str) -> None:
    torch.manual_seed(1)

    class Bags(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.EmbeddingBag(7, 4, mode=mode, include_last_offset=True)
            self.padded = torch.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2)
            self.table = torch.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=-1)

        def forward(self, positions: Any, offsets: Any) -> Any:
            rows = positions[: positions.shape[0] // 3 * 3].reshape(-1, 3)
            left_out = F.embedding_bag(positions, self.table.weight, offsets, mode=mode, padding_idx=-2)
            last = F.embedding_bag(positions, self.table.weight, offsets, mode=mode, padding_idx=-1)
            bags = self.last(positions, offsets), self.padded(positions, offsets), self.table(rows)
            return *bags, left_out, last

    def example(bags: int) -> tuple[Any, ...]:
        offsets = torch.arange(bags) * 3  # the second bag is empty
        offsets[1] = offsets[2] if bags > 2 else 3
        offsets[-1] = 3 * bags if bags > 2 else offsets[-1]
        return torch.randint(0, 7, (3 * bags,)), offsets

    module, bags = Bags().eval(), torch.export.Dim("bags", min=3, max=9)
    program = export(module, example(5), dynamic_shapes=({0: 3 * bags}, {0: bags}))
    graph, weights = imported(program)
    for size in (3, 4, 9):
        assert_same(module, graph, weights, example(size))


def test_distances_of_any_number_of_rows() -> None:
    torch.manual_seed(0)

    class Nearest(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = torch.nn.Parameter(torch.randn(30, 6))

        def forward(self, x: Any) -> Any:
            apart = torch.cdist(x, self.codes)
            return apart, F.embedding(apart.argmin(-1), self.codes)

    before, module = torch.cdist, Nearest().eval()
    graph, weights = imported(export(module, (torch.randn(9, 6),), dynamic_shapes=({0: L},)))
    assert torch.cdist is before
    for size in (4, 25, 26, 64):
        assert_same(module, graph, weights, (torch.randn(size, 6),))


def test_complex_buffers_are_filled_part_by_part() -> None:
    """Fourier layers: https://arxiv.org/abs/2010.08895."""
    torch.manual_seed(0)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(2, 3, 4, 4, dtype=torch.cfloat))

        def forward(self, x: Any) -> Any:
            modes = torch.fft.rfft2(x)
            found = torch.zeros(x.shape[0], 3, 10, 6, dtype=torch.cfloat)
            found[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", modes[:, :, :4, :4], self.weight)
            found[:, :, -4:, :4] = torch.einsum("bixy,ioxy->boxy", modes[:, :, -4:, :4], self.weight)
            found[:, 0, 0, 0] = x.mean((1, 2, 3)) + 2j
            one = torch.full((3, 1, 1), 0.5 + 1j) * torch.ones(3, 1, 1, dtype=torch.cfloat)
            return torch.fft.irfft2(found * one, s=(10, 10))

    module = Layer().eval()
    graph, weights = imported(export(module, (torch.randn(5, 2, 10, 10),), dynamic_shapes=({0: L},)))
    for size in (4, 6):
        assert_same(module, graph, weights, (torch.randn(size, 2, 10, 10),))


def test_an_input_and_a_weight_of_one_name() -> None:
    """The weight was read in place of the input, or refused for its shape."""
    torch.manual_seed(0)

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = torch.nn.Parameter(torch.randn(5))
            self.register_buffer("x_", torch.randn(5))
            self.register_buffer("x", torch.randn(5))

        def forward(self, x: Any, m: Any) -> Any:
            return x * self.m + m * self.x + self.x_

    module = Masked().eval()
    program = export(module, (torch.randn(6, 5), torch.randn(6, 5)), dynamic_shapes=({0: L}, {0: L}))
    graph, weights = imported(program)
    assert set(weights) == {"m", "x", "x_"} and not set(graph.inputs) & set(weights)
    for size in (4, 5):
        assert_same(module, graph, weights, (torch.randn(size, 5), torch.randn(size, 5)))


def test_a_graph_has_a_name_once() -> None:
    graph, type_ = Graph("twice", {}), TensorType("float32", ())
    graph.add_input("x", type_)
    for add in (graph.add_input, graph.add_weight):
        with pytest.raises(GraphError, match="'x' is there already; allowed: a name once"):
            add("x", type_)
