"""What every result says of where it comes from."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import subprocess
from pathlib import Path
from typing import Any

from dietcode.runtime.cpu import available_cores, cpu_model


def facts() -> dict[str, Any]:
    """Device, commit, versions, threads and date."""
    root = Path(__file__).resolve().parent.parent
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=False
    )
    versions: dict[str, str | None] = {}
    for package in ("dietcode", "apache-tvm", "apache-tvm-ffi", "torch", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "device": cpu_model(),
        "cores": available_cores(),
        "commit": commit.stdout.strip() or None,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "versions": versions,
    }


def write(path: Path, data: dict[str, Any]) -> None:
    """Write one result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts() | data, indent=1) + "\n")
    print(path)
