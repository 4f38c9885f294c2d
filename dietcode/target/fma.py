"""Multiply-adds (FMA) of processors, as the cost model counts them. Imports nothing."""

from __future__ import annotations

FMAS = (2.0, 1.0)
"""FMAs of vectors that cores begin in a cycle: some have two units, or join two halves into one."""
FMA_LATENCY = 4.0
"""Cycles from an FMA to the next one on the same accumulator."""
