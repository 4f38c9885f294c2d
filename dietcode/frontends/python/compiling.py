"""From a recorded program to a bundle: parts are tuned as those of a model; `dietcode.load` opens it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.frontends.python.planning import plan_recorded
from dietcode.graph.recorded_model import RecordedModel
from dietcode.measure.engine import Engine
from dietcode.models.compiling import CompileResult, Options, compile_plan
from dietcode.models.planning import ModelPlan
from dietcode.programs.optimisations import ALL, Optimisations
from dietcode.tuner.events import OnEvent, silent


def compile_recorded(
    model: RecordedModel,
    weights: Mapping[str, np.ndarray[Any, Any]],
    folder: Path,
    *,
    options: Options | None = None,
    engine: Engine | None = None,
    on_event: OnEvent = silent,
    keep_weights: bool = True,
    optimisations: Optimisations = ALL,
) -> CompileResult:
    """Tune the kernels of a recorded program and write its bundle.

    Parameters
    ----------
    model : RecordedModel
    weights : mapping of str to array
    folder : Path
        Where the bundle goes; an older one there is replaced.
    options : Options, optional
    engine : Engine, optional
        Where candidates are measured; this machine by default.
    keep_weights : bool
        Whether the weights go into the bundle.
    optimisations : Optimisations
        Of these, those that planning makes; fewer for an ablation.

    Raises
    ------
    ModelError, TargetError, TuningError, LibraryError
        See `dietcode.errors`; the folder stays as it was.
    """

    def planned(fields: Mapping[str, Any]) -> tuple[list[ModelPlan], str]:
        plan = plan_recorded(model, fields, optimisations)
        many = f"{len(plan.facts['blocks'])} blocks, {plan.facts['num_calls']} kernels"
        return [plan], f"{plan.facts['num_operators']} operators become {many}"

    return compile_plan(planned, weights, folder, options, engine, on_event, keep_weights)
