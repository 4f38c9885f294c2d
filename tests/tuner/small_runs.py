"""A small workload for tuning runs with fake measuring, and what they leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec

# Whatever processor runs the tests, a search sees the registers of this one.
AVX512 = {"kind": "llvm", "mcpu": "skylake-avx512", "num_cores": 2}


def make_spec(**changes: Any) -> Spec:
    data: dict[str, Any] = {
        "name": "small-dense",
        "op": {"einsum": "mk,nk->mn", "epilogue": []},
        "tensors": {
            "X": {"dims": "mk", "dtype": "float32"},
            "W": {"dims": "nk", "dtype": "float32", "constant": True},
        },
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {"T": {"min": 1, "max": 24}},
        "dims": {"m": "3*T", "n": 96, "k": 32},
        "target": {"kind": "llvm", "num_cores": 2},
        "budget": {"trials": 16, "seconds": 100.0},
        "objective": {"binary_size": 0.01},
    }
    return spec_from_data(data | changes)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def write_contents(folder: Path, files: dict[str, bytes]) -> None:
    """Write what `contents` returned into another folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def records_file(cache: Path) -> Path:
    (path,) = cache.rglob("*.jsonl")
    return path
