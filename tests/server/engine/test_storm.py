"""Random kills of workers, servers and connections: nothing that was measured is lost, or measured again.

DIETCODE_TEST_KILLS=100 makes it a long storm; DIETCODE_TEST_SEED=N strikes as the run did that printed N.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from storm import Storm

GIVEN = os.environ.get("DIETCODE_TEST_KILLS")
KILLS = dict.fromkeys(("sqlite", "postgresql"), int(GIVEN)) if GIVEN else {"sqlite": 3, "postgresql": 3}


@pytest.fixture
def storm(
    kind: str, tmp_path: Path, new_url: Callable[[], str], request: pytest.FixtureRequest
) -> Iterator[Storm]:
    """One server over SQLite; two that share PostgreSQL."""
    url = new_url()
    cut = None if kind == "sqlite" else lambda: request.getfixturevalue("postgres").cut(url)
    seed = int(os.environ.get("DIETCODE_TEST_SEED", random.randrange(1 << 32)))
    print("DIETCODE_TEST_SEED =", seed)  # noqa: T201 - shown where it fails
    made = Storm(tmp_path, url, 1 if kind == "sqlite" else 2, cut, seed)
    yield made
    made.close()


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.timeout(120 + 10 * max(KILLS.values()))
def test_nothing_is_lost_or_repeated(storm: Storm, kind: str) -> None:
    storm.rage(KILLS[kind])
    storm.calm_down()
    storm.check()
    print(kind, "was hit", dict(storm.hit), "over", len(storm.ids), "jobs")  # noqa: T201 - shown where it fails
