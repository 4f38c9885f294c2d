"""From cells to a bundle: parts tuned as those of a model, and the files that `dietcode.load` opens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.graph.cells import Cells
from dietcode.graph.recursive_model import MAX_LEVEL, MAX_NODES, check_sizes
from dietcode.graph.samples import Samples
from dietcode.measure.engine import Engine
from dietcode.models.compiling import CompileResult, Options, compile_plan
from dietcode.models.planning import ModelPlan
from dietcode.recursion.passes import ALL, Passes
from dietcode.recursion.planning import plan_recursion
from dietcode.tuner.events import OnEvent, silent


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
) -> CompileResult:
    """Tune the kernels of a recursion and write its bundle.

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

    Raises
    ------
    RequestError
        The largest structures are none.
    ModelError, TargetError, TuningError, LibraryError
        See `dietcode.errors`; the folder stays as it was.
    """
    check_sizes(max_nodes, max_level)

    def planned(fields: Mapping[str, Any]) -> tuple[ModelPlan, str]:
        plan = plan_recursion(cells, max_nodes, max_level, fields, samples, passes)
        kernels = ", ".join(f"{number} for {word}" for word, number in plan.facts["kernels"].items())
        return plan, f"{plan.facts['num_operators']} operators become kernels: {kernels}"

    return compile_plan(planned, weights, folder, options, engine, on_event, keep_weights)
