"""What a report says of some forms alone: why there is no T0; of a block of rows its bandwidth."""

from __future__ import annotations

from typing import Any

from dietcode.cost_model.model import Fitted
from dietcode.measure.records import Records
from dietcode.search_space.task import Task

_SEED_NOTE = "not sought: every {} is in the space from the beginning"


def tile_facts(task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
    """Return ``seed_note``, why there is no T0."""
    return {"seed_note": _SEED_NOTE.format("tile")}


def row_facts(task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
    """Return the bytes of each instance, the best predicted rate, and the calibration's bandwidth.

    Returns
    -------
    dict
        ``seed_note``, why there is no T0; ``memory``: ``bytes`` and ``predicted_bytes_per_sec``, one for each
        instance in their order, and ``bandwidth`` as the calibration has it, None where it has none.
    """
    num_bytes = task.problem.num_bytes(task.extents) + 0.0 * fitted.flops
    rates = fitted.throughput.max(axis=1) * num_bytes / fitted.flops
    assert records.calibration is not None
    return {
        "seed_note": _SEED_NOTE.format("step"),
        "memory": {
            "bytes": [float(value) for value in num_bytes],
            "predicted_bytes_per_sec": [float(value) for value in rates],
            "bandwidth": records.calibration.get("bandwidth"),
        },
    }
