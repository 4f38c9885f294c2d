"""From cells to a bundle: parts tuned as those of a model, and the files that `dietcode.load` opens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.graph.cells import Cells
from dietcode.graph.recursive_model import MAX_LEVEL, MAX_NODES, check_sizes
from dietcode.graph.samples import Samples
from dietcode.measure.engine import Engine
from dietcode.models.bundling import bundle_manifest, described_files, report_of_model
from dietcode.models.compiling import CompileResult, Options, tune_parts, write_bundle
from dietcode.recursion.planning import plan_recursion
from dietcode.runtime.manifest import check_writable
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

    Raises
    ------
    RequestError
        The largest structures are none.
    ModelError, TargetError, TuningError, LibraryError
        See `dietcode.errors`; the folder stays as it was.
    """
    check_sizes(max_nodes, max_level)
    options = options or Options()
    check_writable(folder)
    started = time.monotonic()
    plan = plan_recursion(cells, max_nodes, max_level, options.fields(), samples)
    kernels = ", ".join(f"{number} for {word}" for word, number in plan.facts["kernels"].items())
    on_event(Event("plan", f"{plan.facts['num_operators']} operators become kernels: {kernels}", 1, 1))
    tuned = tune_parts(plan.parts, options, engine, on_event)
    report = report_of_model(plan, tuned.code_bytes, tuned.searches)
    described = described_files(plan, report)
    wanted = {name: weights[name] for name in plan.description["weights"]}
    kept = wanted if keep_weights else {}
    write_bundle(folder, described, kept, tuned.folders, partial(bundle_manifest, plan))
    on_event(Event("build", f"{folder}: {len(plan.parts)} libraries", 1, 1))
    return tuned.result(report, time.monotonic() - started)
