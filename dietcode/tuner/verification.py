"""Running a finished library against float64: which instances, and how much of each is compared."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.cost_model.model import FloatArray
from dietcode.dispatcher.rule import Rule
from dietcode.errors import TuningError
from dietcode.measure.children import Children
from dietcode.measure.requests import CheckRequest
from dietcode.runtime.manifest import CODE, DISPATCH, MANIFEST
from dietcode.search_space.problem import AnyProblem, IntArray, instance_extents
from dietcode.search_space.task import Task
from dietcode.tuner.assembly import further_instances
from dietcode.tuner.events import Event, OnEvent

NUM_LEAST = 8
"""Instances that are run at least, where there are so many."""
NUM_MOST = 96
"""Instances that are run at most, unless there are more categories."""
_MAX_FLOPS = 2e10  # of float64, for all instances together
_TIMEOUT_SECS = 300.0  # of one instance
_MAX_CLASSES = 64  # alignment classes of a category


def choose_checked(work: FloatArray, categories: IntArray, num_ragged: IntArray) -> list[int]:
    """Choose the instances that a finished library is run at.

    Each category's largest instance comes first, then a ragged one of each, then the smallest of each. Where
    these are fewer than `NUM_LEAST`, instances spread over all come after them.

    Parameters
    ----------
    work : float64 [num_instances]
        FLOPs.
    categories : int64 [num_instances]
        Which category serves each.
    num_ragged : int64 [num_instances]
        Axes of each that the tile of its category does not divide. Of the instances of a category with the
        most, the one of middle work is taken; none where all are 0.

    Returns
    -------
    list of int
        Rows, each once: at most `NUM_MOST`, or one for each category where these are more.
    """
    order = np.argsort(work, kind="stable")
    own = [order[categories[order] == category] for category in np.unique(categories)]
    uneven = [rows[num_ragged[rows] == max(1, num_ragged[rows].max())] for rows in own]
    wanted = [rows[-1] for rows in own]
    wanted += [rows[len(rows) // 2] for rows in uneven if len(rows)]
    wanted += [rows[0] for rows in own]
    if len(set(wanted)) < NUM_LEAST:
        wanted += list(np.linspace(0, len(work) - 1, NUM_LEAST).astype(int))
    return list(dict.fromkeys(int(row) for row in wanted))[: max(NUM_MOST, len(own))]


def verify(task: Task, files: Mapping[str, bytes], call: Any, children: Children, on_event: OnEvent) -> None:
    """Run a finished library in every category against float64, on the device that it is for.

    Parameters
    ----------
    files : mapping of str to bytes
        The library's files by relative path.
    call : object
        How it is called, as `CheckRequest` has it.

    Raises
    ------
    TuningError
        A result is wrong; then nothing may be written.
    """
    dispatch = json.loads(files[DISPATCH])
    rule = Rule.from_json(dispatch["rule"])
    spec, problem, bindings = task.spec, task.problem, task.instances.bindings
    if len(np.unique(rule.predict(bindings))) < rule.num_categories and not task.instances.exhaustive:
        bindings = np.concatenate([bindings, further_instances(spec).bindings])
    categories = rule.predict(bindings)
    columns = {name: bindings[:, i] for i, name in enumerate(spec.variables)}
    extents = instance_extents(spec, columns)
    work = np.broadcast_to(problem.flops(dict(extents)), len(bindings))
    ragged = _num_ragged(problem, extents, dispatch["categories"], categories)
    manifest = json.loads(files[MANIFEST])
    picked = choose_checked(work, _functions(extents, manifest, categories), ragged)
    with tempfile.TemporaryDirectory(prefix="dietcode-") as temporary:
        path = Path(temporary) / CODE
        path.write_bytes(files[CODE])
        for row in picked:
            binding = {name: int(values[row]) for name, values in columns.items()}
            point = {index: int(extents[index][row]) for index in problem.extents}
            request = CheckRequest(
                problem, str(path), call, (point,), (tuple(binding.values()),), row, _MAX_FLOPS / len(picked)
            )
            error = children.check(request, _TIMEOUT_SECS).error
            if error is not None:
                raise TuningError(f"the finished library fails at {binding}: {error}")
    on_event(Event("verify", f"right on {len(picked)} instances against float64", len(picked), len(picked)))


def _functions(
    extents: Mapping[str, IntArray], manifest: Mapping[str, Any], categories: IntArray
) -> IntArray:
    """Return a number for each instance, the same where the same function of the same category serves it."""
    found = categories * _MAX_CLASSES
    for category, classes in enumerate(manifest.get("alignment_classes", ())):
        waiting = categories == category
        for number, own in enumerate(classes):
            serves = waiting.copy()
            for index in own["dims"]:
                serves &= extents[index] % own["multiple"] == 0
            found[serves] += number
            waiting &= ~serves
    return found


def _num_ragged(
    problem: AnyProblem,
    extents: Mapping[str, IntArray],
    micro_kernels: Sequence[Mapping[str, Any]],
    categories: IntArray,
) -> IntArray:
    """Return how many of rows, columns and reduction the tile that serves an instance does not divide."""
    tiles = np.asarray([[tile["rows"], tile["columns"], tile.get("steps") or 1] for tile in micro_kernels])
    sizes = [np.broadcast_to(size, len(categories)) for size in problem.sizes(dict(extents))[1:]]
    ragged: IntArray = (np.stack(sizes, axis=1) % tiles[categories] > 0).sum(axis=1)
    return ragged
