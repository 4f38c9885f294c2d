"""What moving bytes costs a CPU beyond its caches, by the copies that its calibration timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.cost_model.model import FloatArray

# Of a machine whose calibration timed no copy: 4 MB of a core's own, then memory.
_UNKNOWN = ((1.0, 8e6, 32e6, 128e6), (1e11, 1e11, 3e10, 3e10))


@dataclass(frozen=True)
class Bandwidth:
    """Copies by all cores, of more and more bytes.

    A cache that cores share ends somewhere between its size and that over the number of machines that share
    it, which nobody tells: where copies become slower, other kernels do as well.

    Attributes
    ----------
    sizes : tuple of float
        Bytes that a copy moves, ascending.
    rates : tuple of float
        Bytes a second at each.
    """

    sizes: tuple[float, ...]
    rates: tuple[float, ...]

    @classmethod
    def of(cls, calibration: Mapping[str, Any] | None, streamed: bool = False) -> Bandwidth:
        """Return what a calibration holds; a usual machine where it holds nothing.

        Parameters
        ----------
        streamed : bool
            Copies that are written past the caches; plain ones where it has none of these.
        """
        known = (calibration or {}).get("bandwidth")
        if not known:
            return cls(*_UNKNOWN)
        rates = known.get("streamed_bytes_per_sec") if streamed else None
        pairs = sorted(zip(known["bytes"], rates or known["bytes_per_sec"], strict=True))
        return cls(tuple(float(size) for size, _ in pairs), tuple(float(rate) for _, rate in pairs))

    def rate(self, num_bytes: FloatArray) -> FloatArray:
        """Return the bytes a second of copies of some bytes, [num_points].

        Small copies are slow by their launch alone: none counts as slower than a larger one.
        """
        falling = np.maximum.accumulate(np.asarray(self.rates)[::-1])[::-1]
        logs = np.interp(np.log(np.maximum(num_bytes, 1.0)), np.log(self.sizes), np.log(falling))
        return np.asarray(np.exp(logs), dtype=np.float64)

    def excess_secs(self, num_bytes: FloatArray, best: float | None = None) -> FloatArray:
        """Return the seconds that a copy of some bytes takes beyond those at the best rate, [num_points].

        Parameters
        ----------
        best : float, optional
            Bytes a second; by default those of the fastest copy.
        """
        num_bytes = np.asarray(num_bytes, dtype=np.float64)
        fastest = max(self.rates) if best is None else best
        return np.maximum(num_bytes / self.rate(num_bytes) - num_bytes / fastest, 0.0)
