"""Where the micro-kernels of a pack are measured: some of the instances, and the sweep for κ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.forms import classes_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import AnyProblem, extents_of
from dietcode.workload.instances import largest_instance
from dietcode.workload.spec import Spec

_NUM_POINTS = 6
_SWEEP_ROWS = 64


def instance_facts(problem: AnyProblem, extents: dict[str, int], index: int) -> dict[str, Any]:
    """Extents and shapes of one instance."""
    own = {letter: int(extents[letter]) for letter in problem.extents}
    shapes = {
        name: [int(n) for n in problem.shape(name, own)] for name in (*problem.inputs, *problem.outputs)
    }
    return {"index": index, "extents": own, "shapes": shapes}


def sweep_of(problem: AnyProblem, spec: Spec, tile: CudaMicroKernel) -> list[dict[str, Any]]:
    """Up to `_SWEEP_ROWS` instances of more and more blocks, by one dynamic letter: in steps of whole tiles,
    or of what its next value adds where that is more.
    """
    largest = extents_of(spec, largest_instance(spec))
    windows = {window.output: window for window in problem.windows}
    for role, extent in (("rows", tile.rows), ("batch", 1), ("columns", tile.columns)):
        letters = getattr(problem, role)
        # Positions of a window come last: they change with the axis that it slides over.
        dynamic = sorted((k for k in letters if problem.extents[k] is None), key=lambda k: k not in windows)
        if not dynamic:
            continue
        letter, window = dynamic[-1], windows.get(dynamic[-1])
        step = max(1, -(-extent * largest[letter] // problem.product(letters, largest)))
        if isinstance(problem, AttentionProblem):
            step = extent  # its tiles are of one head's queries
        found: list[dict[str, Any]] = []
        for number in range(1, _SWEEP_ROWS + 1):
            extents = largest | {letter: step * number}
            if window is not None:
                span = window.dilation * (extents[window.kernel] - 1) + 1 - 2 * window.padding
                extents[window.axis] = max(1, (extents[letter] - 1) * window.stride + span)
                extents[letter] = window.num_positions(extents[window.axis], extents[window.kernel])
            found.append(instance_facts(problem, extents, len(found)) | {"shape_vars": {}})
        return found
    return []


def points_of(problem: AnyProblem, tile: CudaMicroKernel, instances: Sequence[dict[str, Any]]) -> list[int]:
    """Instances that are measured: evenly spread over the logarithm of their number.

    Where there are several alignment classes every second one is the nearest of the widest.
    """
    points = np.geomspace(1, len(instances), _NUM_POINTS).round().astype(int) - 1
    classes = classes_of(problem, tile)
    widest = [index for index, one in enumerate(instances) if classes[0].serves(one["extents"])]
    if len(classes) > 1 and widest:
        for number in range(1, len(points) - 1, 2):
            points[number] = min(widest, key=lambda index: abs(index - points[number]))
    return [int(index) for index in np.unique(points)]
