"""Versions that a result was measured with; a result of others than today's is stale."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dietcode.cost_model.features import VERSION as FEATURES
from dietcode.measure.records import FORMAT as RECORDS
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.parse import load_spec

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"


def versions(spec_paths: list[str], generated: str) -> dict[str, str]:
    """What a result depends on.

    Parameters
    ----------
    spec_paths : list of str
        Workloads, below the checkout.
    generated : str
        Prefix of the golden texts that stand for its generator: ``cuda_`` for GPUs, empty for CPUs.
    """
    specs = hashlib.sha256()
    for path in sorted(spec_paths):
        specs.update(canonical_bytes(load_spec(ROOT / path).to_json()))
    return {
        "spec": specs.hexdigest()[:16],
        "features": f"{RECORDS}, features {FEATURES}",
        "generator": generator(generated),
    }


def generator(prefix: str = "") -> str:
    """Digest of the golden texts, which the tests hold equal to what is generated."""
    digest = hashlib.sha256()
    for path in sorted(GOLDEN.glob("*.txt")):
        if path.name.startswith("cuda_") == bool(prefix):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
