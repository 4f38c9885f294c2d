"""From cells to a bundle: parts tuned as those of a model, and the files that `dietcode.load` opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.graph.cells import Cells
from dietcode.graph.recursive_model import MAX_LEVEL, MAX_NODES, RecursiveModel, check_sizes
from dietcode.graph.samples import Samples
from dietcode.measure.engine import Engine
from dietcode.measure.local import LocalMachine
from dietcode.models.compiling import CompileResult, Options, PlanChoice, compile_plan
from dietcode.models.planning import ModelPlan
from dietcode.models.schedule_rows import schedule_rows
from dietcode.recursion.passes import ALL, Passes
from dietcode.recursion.schedules import RecursionSchedule
from dietcode.recursion.trials import fastest_plan, plan_by_counts, plans_of
from dietcode.tuner.events import Event, OnEvent, silent


def compile_recursion(
    cells: Cells,
    weights: Mapping[str, np.ndarray[Any, Any]],
    folder: Path,
    *,
    max_nodes: int = MAX_NODES,
    max_level: int = MAX_LEVEL,
    samples: Samples | None = None,
    options: Options | None = None,
    engine: Engine | None = None,
    on_event: OnEvent = silent,
    keep_weights: bool = True,
    passes: Passes = ALL,
    schedule: RecursionSchedule | None = None,
) -> CompileResult:
    """Tune the kernels of a recursion and write its bundle.

    Of several schedules all kernels are tuned, calls over samples are timed on this machine, and the fastest
    one is kept. Where kernels are measured elsewhere, the multiplications decide.

    Parameters
    ----------
    cells : Cells
    weights : mapping of str to array
    folder : Path
        Where the bundle goes; an older one there is replaced.
    max_nodes : int
        Of a call, all of its structures together.
    max_level : int
        The most nodes of a level that are computed at once; leaves are at most `max_nodes`.
    samples : Samples, optional
        What numbers of rows count; evenly in the logarithm without them.
    options : Options, optional
    engine : Engine, optional
        Where candidates are measured; this machine by default.
    keep_weights : bool
        Whether the weights go into the bundle.
    passes : Passes
        All but for an ablation.
    schedule : RecursionSchedule, optional
        The only one to try, for an ablation.

    Raises
    ------
    RequestError
        The largest structures are none.
    ModelError, TargetError, TuningError, LibraryError
        See `dietcode.errors`; the folder stays as it was.
    """
    check_sizes(max_nodes, max_level)
    model = RecursiveModel(cells, max_nodes, max_level, samples)

    def planned(fields: Mapping[str, Any]) -> tuple[list[ModelPlan], str]:
        plans = plans_of(model, fields, passes, schedule)
        facts = plans[0].facts
        kernels = ", ".join(f"{number} for {word}" for word, number in facts["kernels"].items())
        words = f"{facts['num_operators']} operators become kernels: {kernels}"
        if len(plans) > 1:
            words += f"; schedules to try: {', '.join(plan.facts['schedule'] for plan in plans)}"
        return plans, words

    def chosen(plans: Sequence[ModelPlan], folders: Sequence[Path]) -> ModelPlan:
        plan = fastest_plan(model, plans, folders)
        words = "; ".join(row.text for row in schedule_rows(plan.facts))
        on_event(Event("select", f"schedules: {words}", 1, 1))
        return plan

    is_here = engine is None or isinstance(engine, LocalMachine)
    choice = PlanChoice(chosen if is_here else None, plan_by_counts)
    return compile_plan(planned, weights, folder, options, engine, on_event, keep_weights, choice)
