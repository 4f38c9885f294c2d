"""Records of CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from dietcode.measure import checks
from dietcode.measure.formats.base import RecordFormat
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.target.fma import FMAS
from dietcode.workload.text import clip

_MIN_SWEEP = 2  # points that a line goes through
_MOST_ELEMENTS = 1 << 26  # of a tensor that the reference kernel is read with


def _calibration(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return κ, the sweep of tiles, the reference kernel's reading and, where it is there, the bandwidth."""
    checks.real(body["kappa"], "kappa", least=0.0, most=1.0)
    checks.real(body["reference_secs"], "reference_secs", above=0.0)
    if "reference_tiles" in body:
        checks.whole(body["reference_tiles"], "reference_tiles")
    if "reference_extents" in body:
        _check_extents(dict(body["reference_extents"]))
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
    if "fmas_per_cycle" in body:
        checks.real(body["fmas_per_cycle"], "fmas_per_cycle")
        if body["fmas_per_cycle"] not in FMAS:
            raise ValueError(f"fmas_per_cycle {body['fmas_per_cycle']}; allowed: {', '.join(map(str, FMAS))}")
    if "bandwidth" in body:
        _check_bandwidth(body["bandwidth"])
    return dict(body)


def _check_extents(extents: dict[str, Any]) -> None:
    """Refuse what is no reading of the reference kernel, or one whose tensors are large."""
    if extents.keys() != {"m", "n", "k"}:
        raise ValueError(f"reference_extents {clip(sorted(map(str, extents)))}; allowed: k, m and n")
    for extent in extents.values():
        checks.whole(extent, "reference_extents", most=_MOST_ELEMENTS)
    if any(a * b > _MOST_ELEMENTS for a, b in combinations(extents.values(), 2)):
        raise ValueError(f"reference_extents {clip(extents)}; allowed: {_MOST_ELEMENTS} elements a tensor")


def _check_bandwidth(bandwidth: Mapping[str, Any]) -> None:
    """Refuse what is no list of bytes, ascending, with as many rates."""
    sizes = checks.array(bandwidth["bytes"], "bytes")
    for size in sizes:
        checks.whole(size, "bytes")
    if not sizes or sorted(set(sizes)) != list(sizes):
        raise ValueError(f"bytes {clip(sizes)}; allowed: ascending, one at least")
    for key in ("bytes_per_sec", "streamed_bytes_per_sec"):  # records of before have no streamed copies
        if key == "bytes_per_sec" or key in bandwidth:
            speeds = checks.array(bandwidth[key], key)
            if len(speeds) != len(sizes):
                raise ValueError(f"{len(speeds)} of {key} for {len(sizes)} bytes; allowed: as many")
            for speed in speeds:
                checks.real(speed, key, above=0.0)


CPU = RecordFormat("llvm", "a CPU", cpu_micro_kernel, _calibration, header_facts=("machine", "formerly"))
