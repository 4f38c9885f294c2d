"""Versions that a result was measured with; a result of others than today's is stale.

    python -m benchmarks.evidence.versions    # notes the generator of each commit that a record names

A record of before `measured_with` names its commit alone. What was generated there is looked up once, where
the history is, and kept in ``benchmarks/results/generators.json``: a clone may have no history.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dietcode.cost_model.cpu.features import VERSION as FEATURES
from dietcode.measure.records import FORMAT as RECORDS
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.parse import load_spec

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
RESULTS = ROOT / "benchmarks" / "results"
GENERATORS = RESULTS / "generators.json"
_DIRTY = "-dirty"
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


def note_generators() -> None:
    """Write down the generator of the CPU at each commit that records name; those that git lacks stay."""
    texts = [path.read_text() for path in RESULTS.glob("*/*.json")]
    named = {
        found.removesuffix(_DIRTY) for text in texts for found in re.findall(r'"commit": "([^"]+)"', text)
    }
    known = _generators() | {commit: digest for commit in named if (digest := generator_at(commit, ""))}
    kept = {commit: known[commit] for commit in sorted(named & known.keys())}
    GENERATORS.write_text(json.dumps(kept, indent=1) + "\n")
    _generators.cache_clear()


@functools.cache
def _generators() -> dict[str, str]:
    found: dict[str, str] = json.loads(GENERATORS.read_text()) if GENERATORS.exists() else {}
    return found


def is_of_today(commit: str | None) -> bool:
    """Whether a commit is known to generate for CPUs what today's code does."""
    return _generators().get((commit or "").removesuffix(_DIRTY)) == _todays()


@functools.cache
def _todays() -> str:
    return generator()


def _digest(texts: Mapping[str, bytes], prefix: str) -> str:
    digest = hashlib.sha256()
    for name in sorted(texts):
        if name.startswith("cuda_") == bool(prefix) and not name.startswith(_OTHER_FORMS):
            digest.update(name.encode() + b"\0" + texts[name])
    return digest.hexdigest()[:16]


def _git(*arguments: str) -> bytes | None:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    note_generators()
