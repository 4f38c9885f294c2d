"""Which schedule of a recursion is kept: each is tried on samples, and the fastest stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from dietcode.graph.recursive_model import RecursiveModel
from dietcode.measure.turns import Timings, interleave
from dietcode.models.planning import ModelPlan
from dietcode.recursion.passes import ALL, Passes
from dietcode.recursion.planning import plan_recursion, schedules_of
from dietcode.recursion.schedules import USUAL, Children, RecursionSchedule, timed_structures
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.recursion.loading import load_recursion
from dietcode.runtime.recursion.structure import Structure

_ROUNDS = 9  # of which the median counts
_WORTH_IT = 0.75  # of the multiplications that a refactored recursion may have, where nothing is timed


def plans_of(
    model: RecursiveModel,
    fields: Mapping[str, Any],
    passes: Passes = ALL,
    schedule: RecursionSchedule | None = None,
) -> list[ModelPlan]:
    """Return a plan for each schedule that is worth a trial, the one with the fewest multiplications first.

    Each plan's facts have ``schedules``: of all of them, what a report says.

    Parameters
    ----------
    model : RecursiveModel
    fields : mapping
        Target, budget and objective of each part, as a spec has them.
    passes : Passes
        With fewer than all of them, for an ablation, there is one plan.
    schedule : RecursionSchedule, optional
        The only one to plan for.

    Raises
    ------
    ModelError
        The cells cannot be compiled.
    """
    sizes = model.max_nodes, model.max_level
    if passes != ALL or schedule is not None:
        own = schedule or USUAL
        return [plan_recursion(model.cells, *sizes, fields, model.samples, passes, own)]
    found = schedules_of(model.cells, *sizes, model.samples)
    plans = [
        plan_recursion(model.cells, *sizes, fields, model.samples, schedule=schedule) for schedule in found
    ]
    rows = [
        {
            "schedule": schedule.label,
            "multiply_adds": work,
            "kernels": plan.facts["kernels"]["cell"],
            "secs": None,
        }
        for (schedule, work), plan in zip(found.items(), plans, strict=True)
    ]
    return [_with_schedules(plan, rows) for plan in plans]


def plan_by_counts(plans: Sequence[ModelPlan]) -> ModelPlan:
    """Return the plan with the fewest multiplications; a refactored one only where it has far fewer.

    For where nothing can be timed: on another machine than this one.
    """
    rows = {row["schedule"]: row["multiply_adds"] for row in plans[0].facts.get("schedules", [])}
    plain = [plan for plan in plans if "refactored" not in plan.facts["schedule"]]
    if not rows or not plain or plans[0] is plain[0]:
        return plans[0]
    least, other = (rows[plan.facts["schedule"]] for plan in (plans[0], plain[0]))
    return plans[0] if least <= _WORTH_IT * other else plain[0]


def fastest_plan(model: RecursiveModel, plans: Sequence[ModelPlan], folders: Sequence[Path]) -> ModelPlan:
    """Return the plan whose bundle takes the least time for a call; its facts have all seconds.

    Seconds are of a call over samples; without samples the geometric mean over a small and a large call.

    ``schedules_disturbed`` is among them where something else ran beside the readings, repeated ones too.

    Parameters
    ----------
    model : RecursiveModel
    plans : sequence of ModelPlan
    folders : sequence of Path
        The bundle of each, with its weights.

    Raises
    ------
    LibraryError, TargetError
        A bundle does not run here.
    """
    loaded = [load_recursion(folder, LoadOptions()) for folder in folders]
    given = plans[0].facts["schedules"]
    found: list[Timings] = []
    for children in timed_structures(model.samples, model.cells.children, model.max_nodes):
        structure = _structure_of(children)
        x = loaded[0].random_inputs(structure)
        calls = {row["schedule"]: partial(one, structure, x) for row, one in zip(given, loaded, strict=True)}
        found.append(interleave(calls, _ROUNDS))
    means = {name: geometric_mean([one[name] for one in found]) for name in found[0]}
    rows = [row | {"secs": round(means[row["schedule"]], 9)} for row in given]
    plan = _with_schedules(plans[int(np.argmin([row["secs"] for row in rows]))], rows)
    disturbed = next((one.disturbed for one in found if one.disturbed is not None), None)
    if disturbed is None:
        return plan
    return replace(plan, facts=plan.facts | {"schedules_disturbed": disturbed})


def _with_schedules(plan: ModelPlan, rows: Sequence[Mapping[str, Any]]) -> ModelPlan:
    return replace(plan, facts=plan.facts | {"schedules": [dict(row) for row in rows]})


def _structure_of(children: Children) -> Structure:
    rows = np.full((len(children), max(map(len, children))), -1, np.int32)
    for node, row in enumerate(children):
        rows[node, : len(row)] = row
    return Structure(rows)
