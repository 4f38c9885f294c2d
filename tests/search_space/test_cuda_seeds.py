"""MetaSchedule's CUDA space as seeds: what is read of its decisions, its samples, and its search."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import make_problem
from emulation import Emulated

from dietcode.errors import TuningError
from dietcode.search_space.cuda import seeds as seeds_module
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.metaschedule import PER_ROUND, micro_kernel_of, rounded
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.seeds import cuda_seeds, search_seed
from dietcode.search_space.cuda.space import CudaSeed, build_space, distance, hardware_seeds
from dietcode.search_space.seed import NoTrialError, end_group
from dietcode.target.cuda import CudaTarget

TARGET = CudaTarget("sm_90a")
LIMITS = CudaLimits.of(TARGET)
SCORES = device_problem(make_problem("bmk,bnk->bmn", {"b": 192, "k": 64}))
EXTENTS = {"b": 192, "m": 128, "n": 128, "k": 64}
PROPOSES = f"""echo '{json.dumps({"measure": [CudaMicroKernel(64, 64, 8, 4, 16).to_json()]})}'"""


def made_secs(tile: CudaMicroKernel) -> float:
    """Of no device: least at one tile, by a quarter more for each factor of two away from it."""
    pairs = (
        (tile.rows, 64),
        (tile.columns, 64),
        (tile.thread_rows, 8),
        (tile.thread_columns, 4),
        (tile.k_tile, 16),
    )
    return 1e-4 * (1.0 + 0.25 * sum(abs(math.log2(a / b)) for a, b in pairs))


def test_decisions_are_read_as_a_micro_kernel() -> None:
    tiles = [[16, 2, 16, 4], [9, 1, 16, 8], [48, 16]]
    wanted = CudaMicroKernel(128, 128, 8, 8, 16, row_vthreads=2, column_vthreads=1)
    assert micro_kernel_of(tiles, False, "simt") == wanted
    assert micro_kernel_of(tiles, True, "simt") == replace(wanted, stages=2)


def test_fragments_of_tensor_cores_are_read_as_a_warps_tile() -> None:
    tile = micro_kernel_of([[4, 4, 2, 4], [3, 6, 4, 2], [24, 2]], False, "mma")
    assert tile is not None
    assert (tile.rows, tile.columns, tile.thread_rows, tile.thread_columns) == (128, 128, 64, 32)
    assert (tile.k_tile, tile.unit) == (32, "mma")


@pytest.mark.parametrize(
    ("extent", "least", "wanted"),
    [(1, 1, 1), (7, 1, 7), (40, 1, 40), (127, 1, 128), (2032, 1, 2048), (2304, 1, 2304), (1, 16, 16)],
)
def test_extents_get_divisors(extent: int, least: int, wanted: int) -> None:
    assert rounded(extent, least) == wanted


def test_at_most_an_eighth_is_added() -> None:
    assert all(n <= rounded(n) <= 1.125 * n for n in range(1, 5000))


@pytest.fixture(scope="module")
def found() -> list[CudaSeed]:
    return cuda_seeds(SCORES, TARGET, EXTENTS, num_samples=3)


@pytest.mark.long
def test_samples_follow_the_hardwares_seeds(found: list[CudaSeed]) -> None:
    hardware = hardware_seeds(SCORES, LIMITS)
    assert found[: len(hardware)] == hardware
    sampled = found[len(hardware) :]
    assert len(sampled) == 3
    assert {seed.source for seed in sampled} == {"metaschedule"}
    for number, seed in enumerate(sampled, len(hardware)):
        assert LIMITS.why_not(SCORES, seed.micro_kernel) is None
        assert EXTENTS["m"] % seed.micro_kernel.rows == 0 and EXTENTS["n"] % seed.micro_kernel.columns == 0
        assert all(distance(seed.micro_kernel, other.micro_kernel) > 2 for other in found[:number])


@pytest.mark.thorough
def test_what_was_decided_computes(found: list[CudaSeed]) -> None:
    """Tiles of any divisors: our generator's code of them against float64."""
    tiles = [seed.micro_kernel for seed in found if seed.source == "metaschedule"]
    Emulated(make_problem("bmk,bnk->bmn", {"k": 64}), tiles).check({"b": 2, "m": 45, "n": 70, "k": 64})


@pytest.mark.thorough
def test_half_precision_is_for_tensor_cores() -> None:
    half = replace(SCORES, operand_dtype="float16")
    found = cuda_seeds(half, TARGET, EXTENTS)
    sampled = [seed.micro_kernel for seed in found if seed.source == "metaschedule"]
    assert sampled
    assert {tile.unit for tile in sampled} == {"mma"}
    assert all(LIMITS.holds(half, tile) for tile in sampled)


def test_the_space_grows_around_them(found: list[CudaSeed]) -> None:
    space = build_space(SCORES, found, LIMITS)
    mine = [c.micro_kernel for c in space if c.provenance == "metaschedule"]
    assert {seed.micro_kernel for seed in found if seed.source == "metaschedule"} < set(mine)


@pytest.mark.thorough
def test_the_same_seed_gives_the_same(found: list[CudaSeed]) -> None:
    assert cuda_seeds(SCORES, TARGET, EXTENTS, num_samples=3) == found
    assert cuda_seeds(SCORES, TARGET, EXTENTS, num_samples=0) == hardware_seeds(SCORES, LIMITS)


@pytest.mark.long
def test_the_search_goes_by_seconds() -> None:
    """It gets better than its first, random round, asks for each micro-kernel once, and T0 is the best."""
    rounds: list[list[CudaMicroKernel]] = []
    told: list[tuple[int, float | None]] = []

    def measure(tiles: list[CudaMicroKernel]) -> list[float | None]:
        rounds.append(tiles)
        return [None if tile.k_tile == 64 else made_secs(tile) for tile in tiles]

    num_trials = 2 * PER_ROUND
    seed = search_seed(
        SCORES, TARGET, EXTENTS, measure, num_trials, progress=lambda *found: told.append(found)
    )
    asked = [tile for tiles in rounds for tile in tiles]
    usable = [[made_secs(tile) for tile in tiles if tile.k_tile != 64] for tiles in rounds]
    assert seed == CudaSeed(min((t for t in asked if t.k_tile != 64), key=made_secs), "metaschedule")
    assert len(set(asked)) == len(asked) <= num_trials
    assert all(LIMITS.holds(SCORES, tile) for tile in asked)
    assert told[-1] == (len(asked), made_secs(seed.micro_kernel))
    assert np.mean(usable[-1]) < np.mean(usable[0])

    def first_round_again(tiles: list[CudaMicroKernel]) -> list[float | None]:
        assert tiles == rounds[0]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        search_seed(SCORES, TARGET, EXTENTS, first_round_again, num_trials)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A process in the place of MetaSchedule's."""
    path = folder / "stand-in"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_a_process_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "echo first >&2; echo last words >&2; exit 1")
    with pytest.raises(TuningError, match=r"^MetaSchedule proposed no micro-kernel: last words$"):
        cuda_seeds(SCORES, TARGET, EXTENTS)


@pytest.mark.parametrize(
    ("script", "max_secs", "error"),
    [("sleep 60", 0.3, NoTrialError), (f"{PROPOSES}; sleep 60", 60.0, OSError)],
)
def test_the_process_ends_with_the_search(
    script: str, max_secs: float, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where time is up, and where measuring raises."""
    ended = []

    def end(process: subprocess.Popen[bytes]) -> None:
        end_group(process)
        ended.append(process.returncode)

    def measure(_: list[CudaMicroKernel]) -> list[float | None]:
        raise OSError

    monkeypatch.setattr(seeds_module, "end_group", end)
    stand_in(tmp_path, monkeypatch, script)
    with pytest.raises(error):
        search_seed(SCORES, TARGET, EXTENTS, measure, 8, max_secs=max_secs)
    assert ended == [-signal.SIGKILL]
