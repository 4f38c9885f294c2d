"""Cycles of one step of the reduction in a register tile, by arithmetic alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from dietcode.cost_model.model import FloatArray
from dietcode.target.fma import FMA_LATENCY, FMAS

_FLOAT_BYTES = 4
_L2_BYTES_PER_CYCLE = 32
LEAST_CHAIN = 8
"""Accumulators that hide the latency of an FMA on two units."""


def cycles_of_step(rows: Any, vectors: Any, lanes: int, fmas: float = FMAS[0]) -> FloatArray:
    """Return the cycles of one step on a core with two load ports, [num_tiles].

    The largest of the FMAs, the loads over the ports, the FMAs' latency of 4 cycles, and of the panels'
    bytes, which come from L2 at 32 bytes a cycle.

    Parameters
    ----------
    rows, vectors : number or array [num_tiles]
        Of the tile.
    lanes : int
        Of a vector.
    fmas : float
        That begin in a cycle, one of `FMAS`.
    """
    rows, vectors = np.asarray(rows, dtype=np.float64), np.asarray(vectors, dtype=np.float64)
    from_l2 = vectors * lanes * _FLOAT_BYTES / _L2_BYTES_PER_CYCLE
    ports = np.maximum(rows * vectors / fmas, (rows + vectors) / 2)
    cycles: FloatArray = np.maximum(np.maximum(ports, FMA_LATENCY), from_l2)
    return cycles
