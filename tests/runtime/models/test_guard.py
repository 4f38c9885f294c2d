"""The guard of a model: dimensions bound from shapes, and every shape that is not the model's refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietcode.errors import ShapeError
from dietcode.graph.extent import parse_extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.guard import ShapeGuard

RANGES = {"B": (1, 8), "L": (2, 128)}


def guard(*shapes: list[int | str], **ranges: tuple[int, int]) -> ShapeGuard:
    """Of inputs x, y and z."""
    types = {
        name: TensorType("float32", tuple(map(parse_extent, shape)))
        for name, shape in zip("xyz", shapes, strict=False)
    }
    used = {name for type_ in types.values() for extent in type_.shape for name in extent.variables}
    return ShapeGuard(types, ranges or {name: RANGES[name] for name in RANGES if name in used})


def test_dimensions_are_bound() -> None:
    assert guard(["B", "L", 64]).bind([(3, 17, 64)]) == {"B": 3, "L": 17}
    assert guard([4]).bind([(4,)]) == {}
    assert guard([]).bind([()]) == {}


@pytest.mark.parametrize("shape", [(1, 2, 64), (8, 128, 64)])
def test_both_ends_of_a_range_belong_to_it(shape: tuple[int, ...]) -> None:
    assert guard(["B", "L", 64]).bind([shape]) == {"B": shape[0], "L": shape[1]}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((9, 4, 64), "x: shape [9, 4, 64], whose axis 0 makes B 9; allowed: 1…8"),
        ((1, 1, 64), "x: shape [1, 1, 64], whose axis 1 makes L 1; allowed: 2…128"),
        ((0, 4, 64), "x: shape [0, 4, 64], whose axis 0 makes B 0; allowed: 1…8"),
        ((1, 4, 63), "x: shape [1, 4, 63]; allowed: [B, L, 64] with B in 1…8, L in 2…128"),
        ((4, 64), "x: shape [4, 64]; allowed: [B, L, 64] with B in 1…8, L in 2…128"),
        ((1, 4, 64, 1), "x: shape [1, 4, 64, 1]; allowed: [B, L, 64] with B in 1…8, L in 2…128"),
        ((), "x: shape []; allowed: [B, L, 64] with B in 1…8, L in 2…128"),
    ],
)
def test_shapes_that_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        guard(["B", "L", 64]).bind([shape])
    assert str(caught.value) == message


def test_two_inputs_that_disagree_are_named_with_what_the_other_says() -> None:
    both = guard(["B", "L"], ["B", 64])
    assert both.bind([(2, 5), (2, 64)]) == {"B": 2, "L": 5}
    with pytest.raises(ShapeError) as caught:
        both.bind([(2, 5), (3, 64)])
    assert str(caught.value) == "y: shape [3, 64]; allowed: [B, 64] with B in 1…8 (B is 2 by another axis)"


@pytest.mark.parametrize(
    ("relation", "right"), [("2*L", 12), ("L//2 + 1", 4), ("L - 1", 5), ("min(L, 4)", 4)]
)
@pytest.mark.parametrize("first", [True, False])
def test_relations_hold_whichever_input_comes_first(relation: str, right: int, first: bool) -> None:
    def both(extent: int) -> list[tuple[int, ...]]:
        return [(extent,), (6,)] if first else [(6,), (extent,)]

    found = guard([relation], ["L"]) if first else guard(["L"], [relation])
    assert found.bind(both(right)) == {"L": 6}
    with pytest.raises(ShapeError):
        found.bind(both(right + 1))


def test_a_dimension_follows_from_a_relation_alone() -> None:
    twice = guard(["2*L + 1"])
    assert twice.bind([(13,)]) == {"L": 6}
    with pytest.raises(ShapeError, match=r"x: shape \[12\]; allowed: \[2\*L \+ 1\] with L in 2…128"):
        twice.bind([(12,)])
    with pytest.raises(ShapeError, match="makes L 129"):
        twice.bind([(259,)])


def test_a_dimension_follows_from_a_sum_with_one_that_is_known() -> None:
    caches = guard(["B", "L + P"], ["P"], B=(1, 8), L=(1, 16), P=(0, 100))
    assert caches.bind([(2, 30), (20,)]) == {"B": 2, "L": 10, "P": 20}
    with pytest.raises(ShapeError, match="makes L -1"):
        caches.bind([(2, 19), (20,)])


def test_a_product_with_a_dimension_that_is_zero_is_refused_and_not_divided_by() -> None:
    product = guard(["N"], ["N*L"], N=(0, 4), L=(1, 4))
    assert product.bind([(3,), (6,)]) == {"N": 3, "L": 2}
    with pytest.raises(ShapeError):
        product.bind([(0,), (0,)])
    quotient = guard(["N"], ["L"], ["L//N"], N=(1, 4), L=(1, 64))
    with pytest.raises(ShapeError, match="makes N 0"):
        quotient.bind([(0,), (4,), (4,)])


@pytest.mark.parametrize("shape", [["L//2 + 1"], ["L*L"], [64], ["min(L, 4)"], ["L + B"]])
def test_a_dimension_that_no_shape_tells_is_refused_when_the_model_is_loaded(shape: list[int | str]) -> None:
    with pytest.raises(ValueError, match=r"^dimension [BL] follows from no input's shape"):
        guard(shape, **(RANGES if shape == ["L + B"] else {"L": (2, 128)}))


@given(st.integers(0, 12), st.integers(0, 140), st.integers(0, 300))
def test_what_is_bound_gives_the_shapes_again(b: int, length: int, more: int) -> None:
    checked = guard(["B", "2*L"], ["L + B"])
    extents = parse_extent("2*L"), parse_extent("L + B")
    try:
        bound = checked.bind([(b, length), (more,)])
    except ShapeError:
        right = any(b in range(1, 9) and length == 2 * n and more == n + b for n in range(2, 129))
        assert not right
    else:
        assert (bound["B"], *(extent.evaluate(bound) for extent in extents)) == (b, length, more)
        assert all(low <= bound[name] <= high for name, (low, high) in RANGES.items())
