"""From a program to a bundle: parts tuned as those of a model, and the files that `dietcode.load` opens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.graph.program_model import ProgramModel
from dietcode.measure.engine import Engine
from dietcode.models.bundling import bundle_manifest, described_files, report_of_model
from dietcode.models.compiling import CompileResult, Options, tune_parts, write_bundle
from dietcode.programs.planning import plan_program
from dietcode.runtime.manifest import check_writable
from dietcode.tuner.events import Event, OnEvent, silent


def compile_program(
    model: ProgramModel,
    weights: Mapping[str, np.ndarray[Any, Any]],
    folder: Path,
    *,
    options: Options | None = None,
    engine: Engine | None = None,
    on_event: OnEvent = silent,
    keep_weights: bool = True,
) -> CompileResult:
    """Tune the kernels of a program and write its bundle.

    Parameters
    ----------
    model : ProgramModel
    weights : mapping of str to array
    folder : Path
        Where the bundle goes; an older one there is replaced.
    options : Options, optional
    engine : Engine, optional
        Where candidates are measured; this machine by default.
    keep_weights : bool
        Whether the weights go into the bundle.

    Raises
    ------
    ModelError, TargetError, TuningError, LibraryError
        See `dietcode.errors`; the folder stays as it was.
    """
    options = options or Options()
    check_writable(folder)
    started = time.monotonic()
    plan = plan_program(model, options.fields())
    many = f"{len(plan.facts['blocks'])} blocks, {plan.facts['num_calls']} kernels"
    on_event(Event("plan", f"{plan.facts['num_operators']} operators become {many}", 1, 1))
    tuned = tune_parts(plan.parts, options, engine, on_event)
    report = report_of_model(plan, tuned.code_bytes, tuned.searches)
    wanted = {name: weights[name] for name in plan.description["weights"]}
    kept = wanted if keep_weights else {}
    described = described_files(plan, report)
    write_bundle(folder, described, kept, tuned.folders, partial(bundle_manifest, plan))
    on_event(Event("build", f"{folder}: {len(plan.parts)} libraries", 1, 1))
    return tuned.result(report, time.monotonic() - started)
