"""Seeds for CUDA: from the hardware's limits, and from MetaSchedule on the largest instance (section 4.3).

MetaSchedule proposes, in a process of its own, and the code that is measured is generated here. Without a GPU
its samples are ranked by what can be counted; with one its evolutionary search is guided by seconds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dietcode.confinement import kept_environment
from dietcode.errors import TuningError
from dietcode.lean import python_command, without_torch
from dietcode.search_space.cuda.fetching import WIDTHS
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import CudaSeed, distance, hardware_seeds
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import NoTrialError, end_group
from dietcode.target.cuda import CudaTarget

Measure = Callable[[list[CudaMicroKernel]], list[float | None]]
"""Seconds of micro-kernels at the largest instance, None for each that cannot be measured."""
SOURCE = "metaschedule"
_NUM_DRAWS = 4000
_SAMPLING_SECS = 180.0
_COVERED = 2.0  # distance to which the space around a seed reaches: [T0/2, 2·T0]
_K_TILE_FACTOR = 8
_MAX_LINE = 1 << 20


def cuda_seeds(
    problem: Problem,
    target: CudaTarget,
    extents: Mapping[str, int],
    *,
    num_samples: int = 4,
    seed: int = 0,
) -> list[CudaSeed]:
    """Return seeds without measuring: those of the hardware, then samples of MetaSchedule's space.

    The architecture holds all samples, and they are ranked by what can be counted: two resident blocks, wide
    reads along the reduction, multiply-adds for each read. A sample that is less than a factor of two away
    from an earlier seed is in the space already, and left out.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    extents : mapping of str to int
        Of every index, at the largest instance.
    num_samples : int
        Seeds from MetaSchedule, at most.
    seed : int
        Of its random numbers; the same one gives the same seeds.

    Raises
    ------
    TuningError
        MetaSchedule failed.
    """
    limits = CudaLimits.of(target)
    found = hardware_seeds(problem, limits)
    if not num_samples:
        return found
    sampled: list[CudaMicroKernel] = []

    def take(micro_kernels: list[CudaMicroKernel]) -> list[float | None]:
        sampled.extend(micro_kernels)
        return [None] * len(micro_kernels)

    request = _request(problem, target, extents, seed, num_draws=_NUM_DRAWS)
    _propose(request, take, time.monotonic() + _SAMPLING_SECS)
    most = len(found) + num_samples
    for micro_kernel in sorted(
        sampled, key=lambda micro_kernel: _standing(problem, limits, micro_kernel), reverse=True
    ):
        if len(found) < most and all(
            distance(micro_kernel, other.micro_kernel) > _COVERED for other in found
        ):
            found.append(CudaSeed(micro_kernel, SOURCE))
    return found


def search_seed(
    problem: Problem,
    target: CudaTarget,
    extents: Mapping[str, int],
    measure: Measure,
    num_trials: int,
    *,
    max_secs: float = 600.0,
    seed: int = 0,
    progress: Callable[[int, float | None], None] = lambda done, best: None,
) -> CudaSeed:
    """Return T0 of MetaSchedule's evolutionary search on a GPU: the fastest micro-kernel that was measured.

    A run that resumes an earlier one begins again: with the same seed and seconds the same micro-kernels are
    proposed, and `measure` may answer from records.

    Parameters
    ----------
    problem, extents
        See `cuda_seeds`.
    measure : callable
        Builds and times a list of micro-kernels, each at most once.
    num_trials : int
        Proposals in all; some may turn out to be the same micro-kernel.
    max_secs : float
        When the search is stopped, at most a call of `measure` late.
    progress : callable
        Called after each round with the number of micro-kernels measured and the least seconds so far.

    Raises
    ------
    NoTrialError
        Nothing could be measured within `max_secs`.
    TuningError
        MetaSchedule failed before it proposed anything.
    """
    known: dict[CudaMicroKernel, float | None] = {}

    def best() -> tuple[float, CudaMicroKernel] | None:
        times = [(secs, micro_kernel) for micro_kernel, secs in known.items() if secs is not None]
        return min(times, key=lambda item: (item[0], item[1].order), default=None)

    def answer(micro_kernels: list[CudaMicroKernel]) -> list[float | None]:
        new = [micro_kernel for micro_kernel in dict.fromkeys(micro_kernels) if micro_kernel not in known]
        known.update(zip(new, measure(new) if new else [], strict=True))
        found = best()
        progress(len(known), None if found is None else found[0])
        return [known[micro_kernel] for micro_kernel in micro_kernels]

    request = _request(problem, target, extents, seed, num_trials=num_trials)
    _propose(request, answer, time.monotonic() + max_secs)
    found = best()
    if found is None:
        raise NoTrialError(f"none of {len(known)} proposals of MetaSchedule was measured in {max_secs:.0f} s")
    return CudaSeed(found[1], SOURCE)


def unit_of(problem: Problem, target: CudaTarget) -> str:
    """Return the unit that multiplies: ``mma`` where tensor cores take the operands' dtype, or ``simt``."""
    return "mma" if problem.operand_dtype in target.sm.tensor_dtypes else "simt"


def _request(
    problem: Problem,
    target: CudaTarget,
    extents: Mapping[str, int],
    seed: int,
    num_draws: int = 0,
    num_trials: int = 0,
) -> dict[str, Any]:
    return {
        "problem": problem.to_json(),
        "target": target.to_json(),
        "sizes": [int(size) for size in problem.sizes(dict(extents))[1:]],
        "unit": unit_of(problem, target),
        "seed": seed,
        "num_draws": num_draws,
        "num_trials": num_trials,
    }


def _standing(
    problem: Problem, limits: CudaLimits, micro_kernel: CudaMicroKernel
) -> tuple[bool, bool, float, Any]:
    """Return the sort key of samples, the best one's largest.

    Two resident blocks, so that one computes while the other waits; tiles of whole vectors of steps; then
    multiply-adds for each read of shared memory, times those for each element of global memory.
    """
    registers = limits.registers(problem, micro_kernel)
    resident = limits.sm.resident_blocks(micro_kernel.threads, registers, micro_kernel.shared_bytes)
    widths = [next(w for w in WIDTHS if own // parts % w == 0) for _, own, parts in micro_kernel.sides]
    reads = micro_kernel.thread_rows / widths[0] + micro_kernel.thread_columns / widths[1]
    shared = micro_kernel.num_accumulators / reads
    fetched = micro_kernel.rows * micro_kernel.columns / (micro_kernel.rows + micro_kernel.columns)
    return resident >= 2, micro_kernel.k_tile % _K_TILE_FACTOR == 0, shared * fetched, micro_kernel.order


def _propose(request: dict[str, Any], measure: Measure, deadline: float) -> None:
    """Run MetaSchedule and answer it, until it has no more to propose or time is up.

    Raises
    ------
    TuningError
        It ended before its first proposal.
    """
    rounds = 0
    with (
        tempfile.TemporaryFile() as log,
        tempfile.TemporaryDirectory(prefix="dietcode-seed-", ignore_cleanup_errors=True) as temporary,
    ):
        own = {"TVM_NUM_THREADS": "1", "TMPDIR": temporary}
        process = subprocess.Popen(
            python_command(
                "dietcode.confinement.start", str(os.getpid()), "dietcode.search_space.cuda.metaschedule"
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=without_torch(kept_environment(os.environ) | own),
            start_new_session=True,
        )
        try:
            with contextlib.suppress(BrokenPipeError):
                _send(process, request)
                for line in _lines(process, deadline):
                    micro_kernels = [
                        CudaMicroKernel.from_json(micro_kernel)
                        for micro_kernel in json.loads(line)["measure"]
                    ]
                    rounds += 1
                    _send(process, {"secs": [_finite(secs) for secs in measure(micro_kernels)]})
        finally:
            end_group(process)
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()  # type: ignore[union-attr]
        if not rounds and time.monotonic() < deadline:
            log.seek(0)
            logged = log.read().decode(errors="replace").strip().splitlines() or ["its log is empty"]
            raise TuningError(f"MetaSchedule proposed no micro-kernel: {logged[-1][:200]}")


def _finite(secs: float | None) -> float | None:
    return secs if secs is not None and math.isfinite(secs) else None


def _send(process: subprocess.Popen[bytes], data: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(data).encode() + b"\n")
    process.stdin.flush()


def _lines(process: subprocess.Popen[bytes], deadline: float) -> Iterator[bytes]:
    """Yield lines of its output until it ends, time is up, or one is longer than any proposal."""
    assert process.stdout is not None
    descriptor, buffer = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(buffer) < _MAX_LINE and selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(descriptor, 1 << 16)
            if not part:
                return
            *lines, buffer = (buffer + part).split(b"\n")
            yield from lines
