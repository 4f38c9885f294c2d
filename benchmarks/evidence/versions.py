"""Versions that a result was measured with; a result of others than today's is stale."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dietcode.cost_model.cpu.features import VERSION as FEATURES
from dietcode.measure.records import FORMAT as RECORDS
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.parse import load_spec

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
_OTHER_FORMS = ("depthwise_",)  # no figure is of these


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
        **code(generated),
    }


def code(prefix: str = "") -> dict[str, str]:
    """Those of the versions that are the code's: its records and features, and what it generates."""
    of_cpu = "" if prefix else f", features {FEATURES}"  # those of a GPU have no version
    return {"features": RECORDS + of_cpu, "generator": generator(prefix)}


def generator(prefix: str = "") -> str:
    """Digest of the golden texts, which the tests hold equal to what is generated."""
    return _digest({path.name: path.read_bytes() for path in GOLDEN.glob("*.txt")}, prefix)


def generator_at(commit: str | None, prefix: str) -> str | None:
    """The same at a commit; None where it is not known, had changes, or is not in this clone."""
    if not commit or commit.endswith("+"):
        return None
    place = f"{commit}:{GOLDEN.relative_to(ROOT)}"
    names = _git("ls-tree", "--name-only", place)
    if names is None:
        return None
    texts = [name for name in names.decode().split() if name.endswith(".txt")]
    return _digest({name: _git("show", f"{place}/{name}") or b"" for name in texts}, prefix)


def _digest(texts: Mapping[str, bytes], prefix: str) -> str:
    digest = hashlib.sha256()
    for name in sorted(texts):
        if name.startswith("cuda_") == bool(prefix) and not name.startswith(_OTHER_FORMS):
            digest.update(name.encode() + b"\0" + texts[name])
    return digest.hexdigest()[:16]


def _git(*arguments: str) -> bytes | None:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None
