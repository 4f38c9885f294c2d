"""dietcode.export: branches of a model's own code on sizes, sizes of 1, and axes that are sums of others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graph_runs import assert_same, imported, run_graph, torch

from dietcode.errors import ModelError, ShapeError
from dietcode.graph.extent import Extent, smaller
from dietcode.models.exporting import export
from dietcode.models.importing.exported import load_exported
from dietcode.models.importing.symbols import Symbols, UnknownSizeError

Dim, F = torch.export.Dim, torch.nn.functional
B, H, L, P = Dim("B", min=1, max=9), Dim("H", min=1, max=9), Dim("L", min=1, max=16), Dim("P", min=0, max=30)
HERE = "/".join(Path(__file__).parts[-2:])


class FunctionOfSizes(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        """Return the function's result."""
        return self.function(*args)


BRANCHES: list[tuple[str, Callable[..., Any]]] = [
    ("B == 1", lambda x, y: x * 2 if x.shape[0] == 1 else x * 3),
    ("B > 1", lambda x, y: x * 2 if x.shape[0] > 1 else x * 3),
    ("Mod(B, 2) != 0", lambda x, y: x if not x.shape[0] % 2 else F.pad(x, (0, 0, 0, 1))),
    ("B != 3", lambda x, y: x * 2 if x.shape[0] != 3 else x * 3),
    ("B != H", lambda x, y: x * 2 if x.shape[0] != y.shape[0] else x * 3),
    ("H*B > 1", lambda x, y: x * 2 if x.shape[0] * y.shape[0] > 1 else x * 3),
]


@pytest.mark.parametrize(("said", "function"), BRANCHES)
def test_branches_of_which_the_ranges_have_both_ways(said: str, function: Callable[..., Any]) -> None:
    """PyTorch keeps the example's way without a word, and it would be taken for all sizes."""
    with pytest.raises(ModelError) as caught:
        export(
            FunctionOfSizes(function).eval(),
            (torch.randn(4, 3), torch.randn(5, 3)),
            dynamic_shapes=(({0: B}, {0: H}),),
        )
    found = str(caught.value).replace("B*H", "H*B")
    assert f"a branch on {said} ({HERE}:" in found
    assert "allowed: torch.cond" in str(caught.value)


def test_branches_that_the_ranges_decide() -> None:
    def halved(x: Any) -> Any:
        if x.shape[0] % 2 or x.shape[0] > 18 or x.shape[0] == 1 or x.numel() == 0:
            raise ValueError(x.shape)
        return x.view(-1, 2, 3).sum(1)

    module = FunctionOfSizes(halved).eval()
    graph, weights = imported(export(module, (torch.randn(8, 3),), dynamic_shapes=(({0: 2 * B},),)))
    for rows in (2, 6, 18):
        assert_same(module, graph, weights, (torch.randn(rows, 3),))


@pytest.mark.parametrize("example", [2, 6])
def test_branches_on_multiples_of_a_dim(example: int) -> None:
    """PyTorch begins the range of h in ``2*h`` at 2, so that a branch that h = 1 does not take was kept."""
    shapes = (({1: 2 * Dim("h", min=1, max=4)},),)
    for said, function in (
        ("2*h > 2", lambda x: x * 2 if x.shape[1] > 2 else x * 3),
        ("2*h == 2", lambda x: x * 2 if x.shape[1] == 2 else x * 3),
    ):
        with pytest.raises(ModelError, match=rf"a branch on {re.escape(said)} \({HERE}:"):
            export(FunctionOfSizes(function).eval(), (torch.randn(3, example),), dynamic_shapes=shapes)
    module = FunctionOfSizes(lambda x: x.view(3, -1, 2) + x.view(3, -1, 2)[:, :1]).eval()
    graph, weights = imported(export(module, (torch.randn(3, example),), dynamic_shapes=shapes), h=(1, 3))
    for half in (1, 2, 3):
        assert_same(module, graph, weights, (torch.randn(3, 2 * half),))


GUARDED: list[tuple[Callable[..., Any], Callable[[int, int], bool]]] = [
    (lambda x, y: x * 2 if x.shape[0] % 2 == 0 else x * 3, lambda b, h: b % 2 == 0),
    (lambda x, y: x * 2 if x.shape[0] != 3 else x * 3, lambda b, h: b != 3),
    (lambda x, y: x * 2 if x.shape[0] != y.shape[0] else x * 3, lambda b, h: b != h),
    (lambda x, y: x * 2 if x.shape[0] < 2 * y.shape[0] else x * 3, lambda b, h: b < 2 * h),
    (lambda x, y: x * 2 if x.shape[0] % 3 != 0 else x * 3, lambda b, h: b % 3 != 0),
    (lambda x, y: torch.cat([x, y[: min(7, y.shape[0])]]), lambda b, h: True),
]


@pytest.mark.parametrize(("function", "is_right"), GUARDED)
@pytest.mark.parametrize("is_strict", [False, True])
def test_guards_of_programs_of_pytorch_s_own_export(
    function: Callable[..., Any], is_right: Callable[[int, int], bool], is_strict: bool
) -> None:
    """A program has the example's way of a branch, and a guard that no node says: it was not checked."""
    module = FunctionOfSizes(function).eval()
    shapes = (({0: Dim.AUTO}, {0: Dim.AUTO}),)
    program = torch.export.export(
        module, (torch.randn(4, 3), torch.randn(5, 3)), dynamic_shapes=shapes, strict=is_strict
    )
    graph, weights = imported(program, args_0_0=(2, 9), args_1_0=(2, 9))
    for rows, others in ((2, 2), (3, 3), (3, 9), (4, 2), (5, 8), (9, 2), (6, 7)):
        args = (torch.randn(rows, 3), torch.randn(others, 3))
        if is_right(rows, others):
            assert_same(module, graph, weights, args)
        else:
            given = dict(zip(graph.inputs, (one.numpy() for one in args), strict=True))
            with pytest.raises(ShapeError, match=r"requires .*args_0\.shape\[0\].*, a guard of the export"):
                run_graph(graph, weights, given)


def test_a_guard_that_is_no_comparison_of_sizes() -> None:
    module = FunctionOfSizes(lambda x: x * int(x.shape[0] / 2)).eval()
    program = torch.export.export(module, (torch.randn(4, 3),), dynamic_shapes=(({0: Dim.AUTO},),))
    with pytest.raises(ModelError, match=r"^the program is guarded by .*math\.trunc.* cannot check"):
        imported(program, args_0_0=(2, 9))


WHOLE: list[tuple[str, Callable[..., Any]]] = [
    ("TruncToInt(0.5*ToFloat(L)) == 4", lambda x: x[:, : int(x.shape[1] * 0.5) + 1]),
    ("Eq(TruncToInt(FloatPow(ToFloat(L), 0.5)), 3)", lambda x: x * int(x.shape[1] ** 0.5)),
    ("ToFloat(L)", lambda x: x * 2 if x.shape[1] * 0.3 > 2.5 else x * 3),
]


@pytest.mark.parametrize(("said", "function"), WHOLE)
def test_whole_numbers_of_fractions_of_sizes(said: str, function: Callable[..., Any]) -> None:
    """Python's own numbers are constants: the example's part of a length was taken for all lengths."""
    shapes = (({1: L},),)
    with pytest.raises(ModelError, match=rf"a branch on .*\({HERE}:") as caught:
        export(FunctionOfSizes(function).eval(), (torch.randn(2, 9),), dynamic_shapes=shapes)
    assert said in str(caught.value)


def test_a_whole_number_that_is_the_same_for_all_sizes() -> None:
    module = FunctionOfSizes(lambda x: x[:, int(x.shape[1] * 0.01) :] * 2).eval()
    graph, weights = imported(export(module, (torch.randn(2, 9),), dynamic_shapes=(({1: L},),)))
    for length in (1, 16):
        assert_same(module, graph, weights, (torch.randn(2, length),))


def test_a_check_of_one_size() -> None:
    def checked(x: Any) -> Any:
        torch._check(x.shape[0] % 2 == 0)
        return x * 2

    module = FunctionOfSizes(checked).eval()
    graph, weights = imported(export(module, (torch.randn(4, 3),), dynamic_shapes=(({0: B},),)))
    assert_same(module, graph, weights, (torch.randn(6, 3),))
    with pytest.raises(ShapeError, match=r"requires .* == 0"):
        run_graph(graph, weights, {"args_0": torch.randn(5, 3).numpy()})


@pytest.mark.parametrize("axes", [(0,), ()])
def test_an_axis_that_goes_where_it_is_one(axes: tuple[int, ...]) -> None:
    module = FunctionOfSizes(lambda x: x.squeeze(*axes) * 2).eval()
    program = export(module, (torch.randn(4, 3),), dynamic_shapes=(({0: B},),))
    with pytest.raises(ModelError, match=rf"squeeze of an axis of B, .* \({HERE}:"):
        imported(program)
    graph, weights = imported(program, B=(2, 9))
    assert_same(module, graph, weights, (torch.randn(2, 3),))


def test_sizes_of_one_are_sizes_like_others() -> None:
    """PyTorch's own ways for 0, for 1 and for what is less than a slice takes narrowed the ranges."""

    def pieces(x: Any) -> tuple[Any, ...]:
        y = F.avg_pool1d(F.pad(x, (1, 1)), 3, 2)
        return x[..., :4].sum(-1), x[..., -4:] * 2, F.layer_norm(y.transpose(1, 2), (2,)), y.flatten(1)

    module = FunctionOfSizes(pieces).eval()
    graph, weights = imported(export(module, (torch.randn(3, 2, 9),), dynamic_shapes=(({0: B, 2: L},),)))
    assert graph.ranges == {"B": (1, 9), "L": (1, 16)}
    for batch, length in ((1, 1), (9, 16), (1, 3), (2, 5)):
        assert_same(module, graph, weights, (torch.randn(batch, 2, length),))


def test_dimensions_without_a_range_begin_at_one() -> None:
    module = FunctionOfSizes(lambda x: x * 2).eval()
    program = export(module, (torch.randn(4, 3),), dynamic_shapes=(({0: Dim.AUTO, 1: Dim.DYNAMIC(max=7)},),))
    graph, _ = imported(program, args_0_0=(1, 5))
    assert graph.ranges == {"args_0_0": (1, 5), "args_0_1": (1, 7)}


class Cached(torch.nn.Module):
    """Attention to a cache and to new rows under a mask of both, with positions that the mask tells."""

    def forward(self, x: Any, cache: Any, mask: Any) -> Any:
        """Return new rows."""
        past, length = cache.shape[1], x.shape[1]
        rows = torch.cat([cache, x], 1)
        causal = torch.arange(past + length)[None] <= torch.arange(past, past + length)[:, None]
        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]
        visible = causal[None] & mask[:, None]
        return F.scaled_dot_product_attention(x, rows, rows, visible) + positions[..., None]


@pytest.mark.parametrize("most", [46, 40])
def test_a_mask_as_long_as_a_cache_and_new_rows(most: int, tmp_path: Path) -> None:
    """As PyTorch's program says in a check: T == L + P, which no Dim can say."""

    def args(batch: int, length: int, past: int) -> tuple[Any, ...]:
        mask = torch.ones(batch, past + length, dtype=torch.bool)
        mask[0, : past // 2] = False
        return torch.randn(batch, length, 8), torch.randn(batch, past, 8), mask

    module = Cached().eval()
    both = Dim("T", min=1, max=most)
    program = export(module, args(2, 4, 6), dynamic_shapes=({0: B, 1: L}, {0: B, 1: P}, {0: B, 1: both}))
    torch.export.save(program, tmp_path / "model.pt2")
    graph, weights = imported(load_exported(tmp_path / "model.pt2"))
    assert graph.ranges == {"B": (1, 9), "L": (1, 16), "P": (0, 30)}
    assert str(graph.inputs["mask"].shape[1]) == "L + P"
    for sizes in ((1, 1, 0), (3, 16, 24), (2, 1, 30), (2, 16, 0)):
        assert_same(module, graph, weights, args(*sizes))
    if most < 46:
        with pytest.raises(ShapeError, match=r"axis 1 of mask, which is L \+ P, within 1…40"):
            assert_same(module, graph, weights, args(1, 16, 30))


def test_a_new_size_is_what_a_node_defines_or_stays_refused() -> None:
    """Where PyTorch, as 2.10 for slices that may end early, makes a new symbol of a size that is known."""
    shapes = torch.fx.experimental.symbolic_shapes.ShapeEnv()
    first, second = shapes.create_unbacked_symint(), shapes.create_unbacked_symint()
    symbols = Symbols({"s0": "L"}, {})
    assert symbols.is_new(first)
    with pytest.raises(UnknownSizeError):
        symbols.extent(first)
    found = smaller(Extent.of("L"), Extent.of(4))
    symbols.define(first, found)
    symbols.define(first, Extent.of(9))
    assert (symbols.extent(first), symbols.extent(first + 1)) == (found, found + 1)
    symbols.refuse(first)
    symbols.refuse(second)
    assert symbols.is_refused(second.node.expr)
    assert not symbols.is_refused(first.node.expr)
    symbols.define(3, Extent.of(4))
    assert symbols.extent(3) == Extent.of(3)
