"""What the machine gives at most, now: FMA rate of all cores, and how fast they read a working set.

    python -m benchmarks.roofline [MEGABYTES …]

The kernels are those of `dietcode.bench.roofline`, timed in turns.
"""

from __future__ import annotations

import sys

from dietcode.bench.roofline import Roofline
from dietcode.measure.turns import interleave
from dietcode.runtime.cpu import available_cores


def main(sizes: list[float]) -> None:
    """Print the peak, and the bandwidth at some sizes."""
    roofline = Roofline(available_cores())
    for megabytes in sizes:
        secs = interleave(roofline.probes(megabytes * 1e6), rounds=5)
        found = roofline.figures(secs, 1.0, megabytes * 1e6)
        peak, read = found.peak_gflops, found.read_gbytes_per_sec
        print(f"{megabytes:8.2f} MB: peak {peak:.0f} GFLOP/s, read {read:.1f} GB/s")


if __name__ == "__main__":
    main([float(text) for text in sys.argv[1:]] or [0.05, 1.0, 3.0, 16.0, 64.0])
