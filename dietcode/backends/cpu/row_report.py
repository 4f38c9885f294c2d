"""What a report says of a block of rows alone: bytes a second, and the bandwidth's roofline."""

from __future__ import annotations

from typing import Any

from dietcode.cost_model.model import Fitted
from dietcode.measure.records import Records
from dietcode.search_space.task import Task


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
        "seed_note": "not sought: every step is in the space from the beginning",
        "memory": {
            "bytes": [float(value) for value in num_bytes],
            "predicted_bytes_per_sec": [float(value) for value in rates],
            "bandwidth": records.calibration.get("bandwidth"),
        },
    }
