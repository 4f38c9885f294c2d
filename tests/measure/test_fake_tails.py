"""The fake's times and sizes tell the alternatives for tails apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.fake_children import FakeCpu, kernel_bytes
from dietcode.measure.calibration import reference_problem
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.tails import TAILS

LIMITS = Limits(lanes=8, num_registers=16, l2_bytes=1 << 18, num_cores=2)
DENSE = replace(reference_problem(), extents=dict.fromkeys("mnk"))


def secs(tails: str, m: int, n: int = 320, k: int = 256) -> float:
    return FakeCpu().secs(DENSE, MicroKernel(6, 16, tails), LIMITS, {"m": m, "n": n, "k": k})


def test_partition_is_faster_exactly_where_there_are_tails() -> None:
    assert secs("partition", 12) == pytest.approx(secs("local", 12))
    assert secs("partition", 1) < secs("partition", 3) < secs("local", 1)
    assert secs("partition", 13) < secs("local", 13) < secs("checked", 13)


def test_pieces_cost_a_little() -> None:
    """5 rows of a tile in two bodies, with little to compute, take longer than a padded tile in one."""
    assert secs("partition", 5, k=1) > secs("local", 5, k=1)


def test_global_padding_costs_its_copies() -> None:
    assert secs("global", 12) - secs("local", 12) == pytest.approx(4 * (12 * 256 + 12 * 320) / 10e9 / 2)


def test_partition_is_larger() -> None:
    sizes = {tails: kernel_bytes(MicroKernel(6, 16, tails), LIMITS) for tails in TAILS}
    assert sizes["partition"] > sizes["local"] > 0
