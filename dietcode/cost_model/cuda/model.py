"""The cost model of one micro-kernel on a GPU: what is counted of it, and its fit by `waves`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.cost_model.cuda.waves import CudaCounts, Spread, WaveLaw
from dietcode.cost_model.model import Factors, FloatArray
from dietcode.cost_model.regression import measured
from dietcode.errors import CandidateError
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.forms import call_shape
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem, IntArray
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget


def wave_blocks(target: CudaTarget, num_sms: int, micro_kernel: CudaMicroKernel, facts: KernelFacts) -> int:
    """Return P, the blocks of one wave: multiprocessors times the blocks that are resident on each.

    In whole clusters. A persistent grid has P blocks, and each computes ⌈n/P⌉ of the n tiles, at most: as
    many as there are waves of another grid.

    Parameters
    ----------
    target : CudaTarget
        Its architecture.
    num_sms : int
        Of the device that measured.
    micro_kernel : CudaMicroKernel
    facts : KernelFacts
        Registers and shared memory, from the cubin.

    Raises
    ------
    CandidateError
        Not even one block fits.
    """
    resident = target.sm.resident_blocks(micro_kernel.threads, facts.registers, facts.shared_bytes)
    if not resident:
        needs = f"{micro_kernel.threads} threads of {facts.registers} registers, {facts.shared_bytes} bytes"
        problem = f"{needs} shared: no multiprocessor of {target.arch} holds that"
        raise CandidateError(f"{micro_kernel.name}: {problem}")
    return num_sms * resident // micro_kernel.cluster * micro_kernel.cluster


def count(
    problem: AnyProblem, micro_kernel: CudaMicroKernel, wave: int, extents: Mapping[str, IntArray]
) -> CudaCounts:
    """Count for all instances at once.

    Parameters
    ----------
    wave : int
        P, see `wave_blocks`.
    extents : mapping of str to int64 array [num_instances]
        Extent of every index.
    """
    given = dict(extents)
    shape = next(iter(given.values())).shape
    demand = call_shape(problem, micro_kernel, given).demand

    def each(value: Any) -> FloatArray:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), shape)

    return CudaCounts.of(
        wave,
        flops=each(problem.flops(given)),
        padded_flops=each(demand.padded_flops),
        blocks=each(demand.blocks),
        num_steps=each(demand.num_steps),
        elements=each(demand.elements),
        vectors=each(demand.vectors),
        num_bytes=each(num_bytes(problem, given)),
    )


def num_bytes(problem: AnyProblem, extents: Mapping[str, Any]) -> Any:
    """Return the bytes of all operands and outputs once, what a call moves at least: scalars or arrays."""
    if isinstance(problem, BlockProblem):
        return problem.num_bytes(extents)
    return sum(
        1.0 * problem.storage(name).itemsize * problem.product(tuple(problem.indices[name]), dict(extents))
        for name in (*problem.inputs, *problem.outputs)
    )


@dataclass(frozen=True)
class CudaLocalModel:
    """The fitted f_local of one micro-kernel on one device.

    Attributes
    ----------
    wave : int
        P.
    law : WaveLaw
        Fitted on the measured points.
    """

    micro_kernel: CudaMicroKernel
    wave: int
    law: WaveLaw

    @property
    def fit_error(self) -> float:
        """Median relative error on the measured points."""
        return self.law.fit_error

    def predict(self, problem: AnyProblem, extents: Mapping[str, IntArray]) -> Factors:
        """Return the three factors and their product for every instance."""
        counts = count(problem, self.micro_kernel, self.wave, extents)
        f_local, f_spatial, throughput = self.law.predict(counts)
        return Factors(f_local, f_spatial, counts.f_pad, throughput, counts.imbalance, counts.waves)

    def to_json(self) -> dict[str, float]:
        """Return plain data for the report."""
        facts = dict(zip(self.law.NAMES, (float(c) for c in self.law.coefficients), strict=True))
        facts["busy_blocks"] = self.law.busy_blocks
        return facts | {"wave_blocks": self.wave, "median_fit_error": self.fit_error}


def fit_local(
    problem: AnyProblem,
    micro_kernel: CudaMicroKernel,
    wave: int,
    spread: Spread,
    points: Sequence[Mapping[str, int]],
    secs: Sequence[float],
) -> CudaLocalModel:
    """Fit the coefficients of one micro-kernel on its measured calls.

    Parameters
    ----------
    wave : int
        P, see `wave_blocks`.
    spread : Spread
        Of the device.
    points, secs
        As `measured` takes them.

    Raises
    ------
    CandidateError
        There is no usable measurement.
    """
    extents, times = measured(problem, micro_kernel, points, secs)
    counts = count(problem, micro_kernel, wave, extents)
    return CudaLocalModel(micro_kernel, wave, WaveLaw.fit(counts, spread, times))
