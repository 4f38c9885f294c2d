"""The candidates that a search begins with, in the order in which they are measured."""

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
    """Return T0, its paddings (paper, Figure 10), its neighbours, then the space, small tiles also split.

    Of seeds in clusters or of a persistent grid T0 alone: their neighbours join where they win.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    seeds : list of CudaSeed
        Each with its T0.
    limits : CudaLimits
        Of the target.
    largest : mapping of str to int
        Extent of every index at the largest instance.
    """
    _, rows, columns, reduction = problem.sizes(dict(largest))
    space = build_space(problem, seeds, limits, rows, columns)
    padded = [
        (replace(seed.micro_kernel, tails=tails), seed)
        for tails in TAILS
        for seed in seeds
        if tails in seed.micro_kernel.allowed_tails
        if seed.micro_kernel.is_alone or tails == seed.micro_kernel.tails
    ]
    first = [
        Candidate(micro_kernel, seed.source)
        for micro_kernel, seed in padded
        if limits.holds(problem, micro_kernel)
    ]
    around = [
        Candidate(micro_kernel, "neighbour")
        for seed in seeds
        if seed.micro_kernel.is_alone
        for micro_kernel in neighbours(problem, seed.micro_kernel, limits, reduction)
    ]
    split = [
        Candidate(replace(micro_kernel, splits=splits), "split")
        for micro_kernel in (candidate.micro_kernel for candidate in space)
        if micro_kernel.rows <= _SMALL_ROWS and micro_kernel.is_alone
        for splits in SPLITS
        if reduction >= 2 * splits * micro_kernel.k_tile
    ]
    mixed = [c for pair in zip(space, split, strict=False) for c in pair] + space[len(split) :]
    found: dict[CudaMicroKernel, Candidate] = {}
    for candidate in [*first, *around, *mixed]:
        found.setdefault(candidate.micro_kernel, candidate)
    return list(found.values())
