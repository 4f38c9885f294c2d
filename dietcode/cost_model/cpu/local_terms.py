"""The terms of t_work of a contraction's micro-kernel, by the names of their coefficients.

Each is counted, and stands beside the cycles that arithmetic has for one of it: rates are seconds for each of
these cycles, so that micro-kernels compare in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dietcode.cost_model.cpu.counts import Counts
from dietcode.cost_model.cpu.steps import cycles_of_step
from dietcode.cost_model.model import FloatArray
from dietcode.search_space.cpu.axes import copies_rows
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import Problem

LAUNCH_CYCLES = 6000.0
_TILE_CYCLES = 80.0  # begin and end of a tile
_VECTOR_CYCLES = 2.0  # of a vector that is written
_EDGE_CYCLES = 10.0  # of one that goes to the output by way of a buffer
_STREAMED_PER_CYCLE = 16.0  # elements of a panel
_PACKED_PER_CYCLE, _GATHERED_PER_CYCLE = 4.0, 8.0  # elements

EXPOSED = "secs_per_exposed_cycle_k"
BEYOND = "secs_per_element_beyond"
_PACKED, _GATHERED = "secs_per_packed_element", "secs_per_gathered_element"


@dataclass(frozen=True)
class Memory:
    """How operands reach a core; one for all micro-kernels of a workload. Infinite where that takes no time.

    Attributes
    ----------
    streaming : float
        Elements a cycle of panels that a core reads.
    capacity : float
        Elements of operands and output that a core's share of the caches keeps from call to call.
    """

    streaming: float = np.inf
    capacity: float = np.inf

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of what it adds to t_work."""
        limited = {EXPOSED: self.streaming, BEYOND: self.capacity}
        return tuple(name for name, limit in limited.items() if np.isfinite(limit))

    def exposed(self, counts: Counts) -> FloatArray:
        """Return the cycles by which reading panels exceeds the steps that use them, [num_instances]."""
        cycles = np.maximum(counts.streamed / self.streaming - counts.step_cycles, 0.0)
        return np.asarray(cycles * counts.reduction)

    def beyond(self, counts: Counts) -> FloatArray:
        """Return the elements that come from farther away than these caches, [num_instances]."""
        return np.maximum(counts.footprint - self.capacity, 0.0)


UNLIMITED = Memory()


@dataclass(frozen=True)
class Term:
    """A term of t_work.

    Attributes
    ----------
    count : callable
        ``(Counts, Memory) -> float64 array [num_instances]``.
    cycles : callable
        ``(micro_kernel, lanes, fmas) -> float``: of each that is counted, by arithmetic.
    """

    count: Callable[[Counts, Memory], FloatArray]
    cycles: Callable[[MicroKernel, int, float], float]


def _step(micro_kernel: MicroKernel, lanes: int, fmas: float) -> float:
    return float(cycles_of_step(micro_kernel.rows, micro_kernel.columns // lanes, lanes, fmas))


def _always(cycles: float) -> Callable[[MicroKernel, int, float], float]:
    return lambda micro_kernel, lanes, fmas: cycles


TERMS: dict[str, Term] = {
    "secs_per_visit_k": Term(
        lambda c, _: c.visits * c.reduction, lambda k, *_: k.columns / _STREAMED_PER_CYCLE
    ),
    "secs_per_tile_k": Term(lambda c, _: c.tiles * c.reduction, _step),
    "secs_per_tile": Term(lambda c, _: c.tiles, _always(_TILE_CYCLES)),
    "secs_per_padded_tile": Term(lambda c, _: c.padded_tiles, _always(_TILE_CYCLES)),
    "secs_per_padded_tile_k": Term(lambda c, _: c.padded_tiles * c.reduction, _always(1.0)),
    "secs_per_edge_vector": Term(lambda c, _: c.edge_written, _always(_EDGE_CYCLES)),
    "secs_per_full_tile_k": Term(lambda c, _: (c.tiles - c.padded_tiles) * c.reduction, _step),
    "secs_per_body": Term(lambda c, _: c.tiles - c.padded_tiles + c.tail_bodies, _always(_TILE_CYCLES)),
    "secs_per_tail_cycle_k": Term(lambda c, _: c.tail_cycles * c.reduction, _always(1.0)),
    "secs_per_tail_body_k": Term(lambda c, _: c.tail_bodies * c.reduction, _always(1.0)),
    "secs_per_copied_element": Term(lambda c, _: c.copied, _always(1.0 / _GATHERED_PER_CYCLE)),
    "secs_per_written_vector": Term(lambda c, _: c.written, _always(_VECTOR_CYCLES)),
    _PACKED: Term(lambda c, _: c.packed, _always(1.0 / _PACKED_PER_CYCLE)),
    _GATHERED: Term(lambda c, _: c.gathered, _always(1.0 / _GATHERED_PER_CYCLE)),
    EXPOSED: Term(lambda c, memory: memory.exposed(c), _always(1.0)),
    BEYOND: Term(lambda c, memory: memory.beyond(c), _always(1.0)),
}
_CLAMPED = (
    *("secs_per_visit_k", "secs_per_tile_k", "secs_per_tile"),
    *("secs_per_padded_tile", "secs_per_edge_vector"),
)
_TERMS_OF: dict[str, tuple[str, ...]] = {
    "local": _CLAMPED,
    "checked": (*_CLAMPED, "secs_per_padded_tile_k"),
    "partition": (
        "secs_per_visit_k",
        "secs_per_full_tile_k",
        "secs_per_body",
        "secs_per_tail_cycle_k",
        "secs_per_tail_body_k",
    ),
    "global": ("secs_per_visit_k", "secs_per_tile_k", "secs_per_tile", "secs_per_copied_element"),
}


def terms_of(problem: Problem, micro_kernel: MicroKernel) -> tuple[str, ...]:
    """Return the names of the terms of t_work, without those of `Memory`."""
    terms = (*_TERMS_OF[micro_kernel.tails], "secs_per_written_vector")
    if not problem.column_operand_constant and not micro_kernel.direct:
        terms = (*terms, _PACKED)
    if copies_rows(problem, micro_kernel):
        terms = (*terms, _GATHERED)
    return terms


def work_of(counts: Counts, terms: tuple[str, ...], memory: Memory) -> FloatArray:
    """Return the terms of t_work, [num_instances, num_terms]."""
    return np.stack([TERMS[name].count(counts, memory) for name in terms], axis=1)
