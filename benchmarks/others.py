"""How much of a machine other processes had while something was measured."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Others:
    """Counts from its making on.

    Reads ``/proc/stat``, which is the whole machine's, and what this process used.
    """

    def __init__(self) -> None:
        self._begin = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        ticks = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(ticks) - ticks[3] - ticks[4]  # but for what was idle or waited for a disk
        own = os.times()
        used = own.user + own.system + own.children_user + own.children_system
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), used

    def share(self) -> float:
        """Return the part of all cores' time that others had, 0 to 1."""
        secs, busy, own = (after - before for after, before in zip(self._now(), self._begin, strict=True))
        return max(busy - own, 0.0) / max(secs * (os.cpu_count() or 1), 1e-9)
