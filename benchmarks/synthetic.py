"""Micro-kernels whose times come from a formula, for what needs no device: choosing, fitting, dispatching."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fake_children import FIXED_BYTES, FakeCpu, kernel_bytes
from dietcode.cost_model.cpu.model import LocalModel, terms_of
from dietcode.cost_model.model import FloatArray, cost_array
from dietcode.measure.calibration import reference_problem
from dietcode.measure.points import choose_anchors, full_wave, wave_points
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import IntArray, instance_extents, problem_from_spec
from dietcode.target.cpu import CpuTarget, device_record
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import Instances, make_instances
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec

AVX512 = Limits(lanes=16, num_registers=32, l2_bytes=1 << 20, num_cores=8)
KAPPA = 0.95
_HZ = 4e9
_FIXED = {  # seconds of the terms of local padding that are the same for every tile
    "secs_per_tile": 20e-9,
    "secs_per_padded_tile": 5e-9,
    "secs_per_written_vector": 1e-9,
}


def two_variables(high: int = 4096, reduction: int = 768, **changes: Any) -> Spec:
    """``Y[M, N] = X[M, K] · W[N, K]ᵀ`` with M and N from 1 to `high`."""
    free = {name: {"dims": dims, "dtype": "float32"} for name, dims in (("X", "mk"), ("W", "nk"))}
    data: dict[str, Any] = {
        "name": "two-variables",
        "op": {"einsum": "mk,nk->mn"},
        "tensors": free,
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {name: {"min": 1, "max": high} for name in "MN"},
        "dims": {"m": "M", "n": "N", "k": reduction},
        "target": {"kind": "llvm"},
    }
    return spec_from_data(data | changes)


def all_tiles(limits: Limits) -> list[MicroKernel]:
    """Every tile that the register file holds."""
    tiles = [
        MicroKernel(rows, vectors * limits.lanes)
        for vectors in range(1, limits.num_registers)
        for rows in range(1, limits.num_registers)
    ]
    return [tile for tile in tiles if limits.holds(tile)]


def models(limits: Limits, num: int, seed: int = 0) -> list[LocalModel]:
    """Plausible f_local of `num` micro-kernels, each coefficient off by up to 10 %; tiles repeat."""
    rng, tiles, found = np.random.default_rng(seed), all_tiles(limits), []
    for tile in (tiles[i % len(tiles)] for i in range(num)):
        vectors, terms = tile.columns / limits.lanes, terms_of(reference_problem(), tile)
        steady = max(tile.rows * vectors, tile.rows + vectors) / 2 / _HZ
        known = {"secs_per_visit_k": tile.columns * 4 / 20e9, "secs_per_tile_k": steady} | _FIXED
        plain = np.array([2e-6, *(known[name] for name in terms)])
        found.append(LocalModel(tile, plain * rng.uniform(0.9, 1.1, plain.size), terms, 0.01))
    return found


def predict(spec: Spec, instances: Instances, some: list[LocalModel], limits: Limits) -> FloatArray:
    """Predicted FLOP/s, [num_instances, num_models]."""
    problem, extents = problem_from_spec(spec), instance_extents(spec, instances.columns())
    return cost_array([model.predict(problem, limits, KAPPA, extents) for model in some])


def flops(spec: Spec, instances: Instances) -> FloatArray:
    """FLOPs of each instance of a contraction."""
    extents = instance_extents(spec, instances.columns())
    return np.asarray(2.0 * np.prod([v.astype(np.float64) for v in extents.values()], axis=0))


def sizes(some: list[LocalModel]) -> IntArray:
    """Bytes of each micro-kernel."""
    return np.array([kernel_bytes(model.micro_kernel, AVX512) for model in some], dtype=np.int64)


def fake_records(spec: Spec, target: CpuTarget, seed: int = 0) -> Records:
    """Records of every tile that the target holds, with times of `FakeCpu`, off by up to 5 %."""
    problem, limits, fake = problem_from_spec(spec), Limits.of(target), FakeCpu(KAPPA)
    rng = np.random.default_rng(seed)
    anchors = choose_anchors(problem, instance_extents(spec, make_instances(spec).columns()))
    records = Records(workload_digest(spec), device_record(target))
    records.calibration, records.fixed_bytes = {"kappa": KAPPA}, FIXED_BYTES
    for tile in all_tiles(limits):
        points = tuple(wave_points(partial(full_wave, problem, tile), anchors))
        factor = rng.uniform(0.95, 1.05)
        secs = tuple(factor * fake.secs(problem, tile, limits, point) for point in points)
        size = FIXED_BYTES + kernel_bytes(tile, limits)
        records.measurements[tile] = Measurement(tile, "hardware", points, secs, size)
    return records


def peak_mib() -> float:
    """Most memory that this process ever had.

    Not `ru_maxrss`: on Linux that begins with what the parent had, as long as the child was not yet itself.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
