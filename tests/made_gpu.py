"""Records as a GPU would write them, for tests of the service: device and numbers are invented."""

from __future__ import annotations

from typing import Any

from small_libraries import spec_data

from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.target.cubin import KernelFacts
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data

ARCH = "sm_90a"
NAME = "No GPU at all, invented by a test"
TILES = (
    CudaMicroKernel(16, 32, 4, 4, 16, stages=2, splits=2),
    CudaMicroKernel(32, 64, 4, 4, 16),
    CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2),
)
_WAVE = 8


def gpu_spec(name: str = "on-gpu", arch: str = ARCH, **changes: Any) -> dict[str, Any]:
    """``Y[16T, N] = X[16T, K] · W[N, K]ᵀ`` for a GPU."""
    return spec_data(name, target={"kind": "cuda", "arch": arch}, **changes)


def device(synthetic: bool = False, arch: str = ARCH) -> dict[str, Any]:
    """The header's device; the tests' own workload and service are all that it ever gets to."""
    target = {"kind": "cuda", "arch": arch}
    return {"id": "f00d", "name": NAME, "num_sms": 4, "target": target, "synthetic": synthetic}


def made_records(synthetic: bool = False, arch: str = ARCH, **changes: Any) -> Records:
    """Three micro-kernels, the larger the more efficient in full waves, and one that spills."""
    records = Records(workload_digest(spec_from_data(gpu_spec(**changes))), device(synthetic, arch))
    blocks = list(range(2, 4 * _WAVE, 2))
    secs = [3e-6 + 1e-5 * (-(-n // _WAVE) + n / _WAVE) / 2 for n in blocks]
    records.calibration = {"wave_blocks": _WAVE, "num_blocks": blocks, "secs": secs}
    for tile, rate in zip(TILES, (1.0, 1.6, 2.4), strict=True):
        points = tuple({"m": 16 * t, "n": 64, "k": 48} for t in (1, 2, 4, 8))
        times = []
        for point in points:
            count = -(-point["m"] // tile.rows) * -(-64 // tile.columns) * tile.splits
            waves = (-(-count // _WAVE) + count / _WAVE) / 2
            times.append(3e-6 + waves * tile.rows * tile.columns * 48 / tile.splits / rate / 1e9)
        facts = KernelFacts(64, tile.shared_bytes, 0, 9000)
        records.measurements[tile] = Measurement(tile, "hardware", points, tuple(times), facts=facts)
    spilling = CudaMicroKernel(128, 64, 16, 8, 8)
    facts = KernelFacts(255, spilling.shared_bytes, 64, 1)
    records.measurements[spilling] = Measurement(spilling, "hardware", points, tuple(times), facts=facts)
    return records


def lines_of(records: Records) -> list[dict[str, Any]]:
    """As a records file has them."""
    return list(records.lines())
