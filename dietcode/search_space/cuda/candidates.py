"""What is measured first, in order; a search goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import CudaSeed, build_space, neighbours
from dietcode.search_space.problem import Problem
from dietcode.search_space.tails import TAILS

SPLITS = (2, 4, 8)
_SMALL_ROWS = 64  # tiles that serve few rows, so that there may be fewer blocks than multiprocessors


def starting_candidates(
    problem: Problem, seeds: list[CudaSeed], limits: CudaLimits, largest: Mapping[str, int]
) -> list[Candidate]:
    """T0 first, its paddings (paper, Figure 10), its neighbours, then the space, small tiles also split.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.lowering.device_problem` gives it.
    largest : mapping of str to int
        Extent of every letter at the largest instance.
    """
    _, rows, columns, reduction = problem.sizes(dict(largest))
    space = build_space(problem, seeds, limits, rows, columns)
    padded = [
        (replace(seed.tile, tails=tails), seed)
        for tails in TAILS
        for seed in seeds
        if tails in seed.tile.allowed_tails
    ]
    first = [Candidate(tile, seed.source) for tile, seed in padded if limits.holds(problem, tile)]
    around = [
        Candidate(tile, "neighbour")
        for seed in seeds
        for tile in neighbours(problem, seed.tile, limits, reduction)
    ]
    split = [
        Candidate(replace(tile, splits=splits), "split")
        for tile in (candidate.micro_kernel for candidate in space)
        if tile.rows <= _SMALL_ROWS
        for splits in SPLITS
        if reduction >= 2 * splits * tile.steps
    ]
    mixed = [c for pair in zip(space, split, strict=False) for c in pair] + space[len(split) :]
    found: dict[CudaMicroKernel, Candidate] = {}
    for candidate in [*first, *around, *mixed]:
        found.setdefault(candidate.micro_kernel, candidate)
    return list(found.values())
