"""What to pack next, by what a GPU measured: rounds of the search where the GPU's machine has no compiler.

The tuner's own planner chooses: its learned f_local ranks the space by the records of a first pack, of the
same workload or of others whose operands are as wide, and the space grows around what won there. Blocks have
no such rounds: `pack` lists their space from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dietcode.backends.cuda.backend import CudaBackend
from dietcode.cost_model.model import Fitted
from dietcode.measure.records import Records, read_records
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.task import Task
from dietcode.tuner.planner import Planner
from dietcode.tuner.search import Search
from dietcode.workload.dtypes import STORAGE
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec

_FINALISTS = 4  # of each measured point, packed again to be read beside what is new


def next_candidates(
    spec: Spec, earlier: Sequence[tuple[Spec, Path]], space: Sequence[Candidate], most: int
) -> list[Candidate]:
    """Return what to measure next: the best of what was, then what the planner ranks first.

    Where no records are of a problem of this form, and of operands as wide, the space in its own order.

    Parameters
    ----------
    earlier : sequence of (Spec, Path)
        Workloads and their records, all of one GPU.
    space : sequence of Candidate
        Where the search begins.
    """
    backend = CudaBackend()
    task, digest = backend.task(spec), workload_digest(spec)
    read = [(backend.task(other), read_records(path)) for other, path in earlier]
    alike = [
        (other, _with_rate(other, given))
        for other, given in read
        if _kind(other.problem) == _kind(task.problem) and given.calibration is not None
    ]
    if not alike:
        return list(space[:most])
    first = alike[0][1]
    fresh = Records(digest, first.device, calibration=first.calibration)
    records = next((given for _, given in alike if given.workload == digest), fresh)
    target = backend.target_of(records, spec.name)
    others = [
        (backend.domain(other.problem, target, given.device), given)
        for other, given in alike
        if given is not records
    ]
    domain = backend.domain(task.problem, target, records.device)
    planner = Planner(domain, task.extents, task.instances.weights, Search(), others)
    kept = _finalists(domain.fit(records, planner.sample), records) if records.measurements else []
    planner.add([*kept, *space])
    return [*kept, *planner.plan(records, max(0, most - len(kept))).batch][:most]


def _kind(problem: AnyProblem) -> tuple[str, int]:
    """Return the form, and the bytes of an operand's element."""
    return problem.form, STORAGE[problem.operand_dtype].itemsize


def _with_rate(task: Task, records: Records) -> Records:
    """Return the records with what a block of their sweep computes, which a pack's machine does not write."""
    swept = dict(records.calibration or {})
    kernel = next((k for k in records.measurements if k.name == swept.get("micro_kernel")), None)
    if isinstance(kernel, CudaMicroKernel) and "block_flops" not in swept:
        points, problem = records.measurements[kernel].points, task.problem
        steps = max(problem.product(tuple(problem.reduction), dict(point)) for point in points)
        swept |= {"block_flops": 2 * kernel.rows * kernel.columns * steps, "unit": kernel.unit}
    return replace(records, calibration=swept)


def _finalists(fitted: Fitted, records: Records) -> list[Candidate]:
    """Return those that are predicted best somewhere, then the fastest of each measured point."""
    best = [fitted.models[index].micro_kernel for index in np.unique(fitted.throughput.argmax(axis=1))]
    whole = [m for m in records.measurements.values() if m.usable]
    for place in range(min(len(m.secs) for m in whole)):
        best += [m.micro_kernel for m in sorted(whole, key=lambda m: m.secs[place])[:_FINALISTS]]
    return [Candidate(one, records.measurements[one].provenance) for one in dict.fromkeys(best)]
