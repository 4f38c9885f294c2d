"""Cases that are left out have no two values of two parameters that none of the others has."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from pairwise import covering


@pytest.mark.parametrize(("sizes", "most"), [((5,), 5), ((3, 4), 12), ((3, 4, 2), 12), ((3, 3, 3, 3), 14)])
def test_every_pair_is_covered(sizes: tuple[int, ...], most: int) -> None:
    cases = [dict(zip("abcd", values, strict=False)) for values in product(*map(range, sizes))]
    chosen = [cases[position] for position in covering(cases)]
    assert len(chosen) <= most
    for one, other in combinations("abcd"[: len(sizes)], 2):
        wanted = {(case[one], case[other]) for case in cases}
        assert {(case[one], case[other]) for case in chosen} == wanted
    assert {case["a"] for case in chosen} == set(range(sizes[0]))


def test_cases_that_are_no_product() -> None:
    """Of what is given pair by pair all stays, and nothing is made up."""
    cases = [{"einsum": f"e{n}", "fixed": f"f{n}", "unit": unit} for n in range(4) for unit in "ab"]
    assert covering(cases) == set(range(8))
    assert covering([]) == set()
