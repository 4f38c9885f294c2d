"""From cells to a bundle: parts tuned as those of a model, and the files that `dietcode.load` opens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import RequestError
from dietcode.measure.engine import Engine
from dietcode.models.bundling import bundle_manifest, report_of_model
from dietcode.models.compiling import CompileResult, Options, tune_parts, write_bundle
from dietcode.recursion.cells import Cells
from dietcode.recursion.planning import plan_recursion
from dietcode.runtime.manifest import RECURSION, RECURSION_FORMAT, REPORT, check_writable, pretty_json
from dietcode.tuner.events import Event, OnEvent, silent

MAX_NODES, MAX_LEVEL = 8192, 1024
_MOST_NODES = 2**24


def compile_recursion(
    cells: Cells,
    weights: Mapping[str, np.ndarray[Any, Any]],
    folder: Path,
    *,
    max_nodes: int = MAX_NODES,
    max_level: int = MAX_LEVEL,
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
    plan = plan_recursion(cells, max_nodes, max_level, options.fields())
    kernels = ", ".join(f"{number} for {word}" for word, number in plan.facts["kernels"].items())
    on_event(Event("plan", f"{plan.facts['num_operators']} operators become kernels: {kernels}", 1, 1))
    tuned = tune_parts(plan.parts, options, engine, on_event)
    report = report_of_model(plan, tuned.code_bytes, tuned.searches)
    described = {RECURSION: pretty_json(plan.description), REPORT: pretty_json(report)}
    wanted = {name: weights[name] for name in plan.description["weights"]}

    manifest = partial(bundle_manifest, plan, bundle_format=RECURSION_FORMAT)
    write_bundle(folder, described, wanted if keep_weights else {}, tuned.folders, manifest)
    on_event(Event("build", f"{folder}: {len(plan.parts)} libraries", 1, 1))
    return tuned.result(report, time.monotonic() - started)


def default_sizes(max_nodes: int | None, max_level: int | None) -> tuple[int, int]:
    """Return the largest structures, where they are not all given."""
    nodes = MAX_NODES if max_nodes is None else max_nodes
    return nodes, min(MAX_LEVEL, nodes) if max_level is None else max_level


def check_sizes(max_nodes: int, max_level: int) -> None:
    """Refuse sizes of structures that cannot be.

    Raises
    ------
    RequestError
        What is allowed is said.
    """
    if not 1 <= max_nodes <= _MOST_NODES:
        raise RequestError(f"--max-nodes: given {max_nodes}; allowed: 1 to {_MOST_NODES}")
    if not 1 <= max_level <= max_nodes:
        allowed = f"1 to {max_nodes}, which --max-nodes is"
        raise RequestError(f"--max-level: given {max_level}; allowed: {allowed}")
