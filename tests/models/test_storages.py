"""Memory of a model: values that live at the same time never share a storage, and others do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dietcode.graph.extent import Extent, parse_extent
from dietcode.models.memory import Lifetime, plan_storages

RANGES = {"B": (1, 8), "L": (1, 512)}
SIZES = ("4*B*L", "256*B*L", "8*L", "64", "1024*B", "4*(L//2 + 1)", "4*B*L*L")


def life(size: str, first: int, last: int) -> Lifetime:
    """A lifetime."""
    return Lifetime(parse_extent(size), first, last)


def test_what_lives_one_after_the_other_shares() -> None:
    chain = {f"v{n}": life("256*B*L", n, n + 1) for n in range(10)}
    chosen, storages = plan_storages(chain, RANGES)
    assert len(storages) == 2 and [chosen[f"v{n}"] for n in range(4)] == [0, 1, 0, 1]
    assert storages[0].sizes == [parse_extent("256*B*L")] and storages[0].most == 256 * 8 * 512


def test_the_step_that_reads_last_does_not_write_over_it() -> None:
    chosen, _ = plan_storages({"a": life("64", 0, 1), "b": life("64", 1, 2), "c": life("64", 2, 2)}, RANGES)
    assert chosen["a"] != chosen["b"] and chosen["c"] == chosen["a"]


def test_the_same_symbolic_size_comes_first() -> None:
    """Of two free storages that are nearly as large at most, that of the same size at every shape."""
    lives = {"a": life("4096*B", 0, 0), "b": life("64*L", 0, 0), "c": life("64*L", 1, 1)}
    chosen, storages = plan_storages(lives, RANGES)
    assert chosen["c"] == chosen["b"] and [len(one.sizes) for one in storages] == [1, 1]


def test_a_storage_is_as_large_as_the_largest_of_its_values() -> None:
    lives = {"a": life("8*L", 0, 0), "b": life("1024*B", 1, 1)}
    chosen, (storage,) = plan_storages(lives, RANGES)
    assert set(chosen.values()) == {0} and storage.most == 8 * 1024
    assert storage.sizes == [parse_extent("8*L"), parse_extent("1024*B")]


def test_a_small_storage_is_not_stretched_to_a_large_value() -> None:
    lives = {"a": life("8*L", 0, 0), "b": life("256*B*L", 1, 1), "c": life("8*L", 2, 2)}
    chosen, storages = plan_storages(lives, RANGES)
    assert len(storages) == 2 and chosen["c"] == chosen["a"]


def test_nothing() -> None:
    assert plan_storages({}, RANGES) == ({}, [])


_LIVES = st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 20), st.integers(0, 6)), max_size=24)


@given(_LIVES, st.integers(1, 8), st.integers(1, 512))
def test_no_two_values_that_live_at_once_share(
    drawn: list[tuple[str, int, int]], b: int, length: int
) -> None:
    lives = {f"v{n}": life(size, first, first + more) for n, (size, first, more) in enumerate(drawn)}
    chosen, storages = plan_storages(lives, RANGES)
    assert set(chosen) == set(lives) and set(chosen.values()) == set(range(len(storages)))
    names = sorted(lives)
    for number, name in enumerate(names):
        one = lives[name]
        for other in names[number + 1 :]:
            if chosen[other] == chosen[name]:
                assert one.last < lives[other].first or lives[other].last < one.first
    binding = {"B": b, "L": length}
    for name, one in lives.items():
        storage = storages[chosen[name]]
        assert one.size in storage.sizes
        assert one.size.evaluate(binding) <= storage.most
    together = sum(storage.most for storage in storages)
    apart = sum(one.size.bounds(RANGES)[1] for one in lives.values())
    assert together <= apart


def test_the_order_of_the_mapping_does_not_matter() -> None:
    lives = {f"v{n}": life(SIZES[n % 5], n % 7, n % 7 + n % 3) for n in range(20)}
    turned = dict(reversed(lives.items()))
    assert plan_storages(lives, RANGES)[0] == plan_storages(turned, RANGES)[0]
    assert all(isinstance(size, Extent) for one in plan_storages(lives, RANGES)[1] for size in one.sizes)
