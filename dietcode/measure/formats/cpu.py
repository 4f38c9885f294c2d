"""Records of CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.measure import checks
from dietcode.measure.formats.base import RecordFormat
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.workload.text import clip

_MIN_SWEEP = 2  # points that a line goes through


def _calibration(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return κ, the sweep of tiles, the reference kernel's reading and, where it is there, the bandwidth."""
    checks.real(body["kappa"], "kappa", least=0.0, most=1.0)
    checks.real(body["reference_secs"], "reference_secs", above=0.0)
    counts = checks.array(body["num_tiles"], "num_tiles")
    rates = checks.array(body["tile_gflops"], "tile_gflops")
    for count in counts:
        checks.whole(count, "num_tiles")
    for rate in rates:
        checks.real(rate, "tile_gflops", above=0.0)
    if len(counts) != len(rates) or len(counts) < _MIN_SWEEP:
        raise ValueError(f"{len(rates)} rates for {len(counts)} num_tiles; allowed: as many, two at least")
    if len(set(counts)) != len(counts):
        raise ValueError(f"num_tiles {clip(counts)}; allowed: each number once")
    if "bandwidth" in body:
        sizes, speeds = (checks.array(body["bandwidth"][key], key) for key in ("bytes", "bytes_per_sec"))
        for size, speed in zip(sizes, speeds, strict=True):
            checks.whole(size, "bytes")
            checks.real(speed, "bytes_per_sec", above=0.0)
    return dict(body)


CPU = RecordFormat("llvm", "a CPU", cpu_micro_kernel, _calibration)
