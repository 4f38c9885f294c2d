"""What every result says of where it comes from."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dietcode.bench.disturbance import undisturbed_of
from dietcode.runtime.cpu import available_cores, cpu_model


def facts() -> dict[str, Any]:
    """Device, commit, versions, threads and date."""
    commit = _git("describe", "--always") or None
    if commit and _git("status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results"):
        commit += "-dirty"
    versions: dict[str, str | None] = {}
    for package in ("dietcode", "apache-tvm", "apache-tvm-ffi", "torch", "numpy", "onnxruntime", "openvino"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "device": cpu_model(),
        "cores": available_cores(),
        "commit": commit,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "versions": versions,
    }


def calm(rows: Sequence[Mapping[str, Any]], what: str) -> list[Any]:
    """Return the rows that figures are of: those without ``disturbed``, see `dietcode.bench.disturbance`.

    Raises
    ------
    SystemExit
        Half of the rows or more were disturbed: the others stand for nothing.
    """
    kept = undisturbed_of(rows, lambda row: row.get("disturbed"))
    disturbed = [row["disturbed"] for row in rows if row.get("disturbed")]
    if disturbed:
        print(f"{what}: {len(disturbed)} of {len(rows)} rows were disturbed ({disturbed[0]})", flush=True)
    if rows and not kept:
        raise SystemExit(f"{what}: no figure is written; run it again when nothing else runs")
    return kept


def _git(*arguments: str) -> str:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write(path: Path, data: dict[str, Any]) -> None:
    """Write one result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts() | data, indent=1) + "\n")
    print(path)
