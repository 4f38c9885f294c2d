"""The workloads one after the other, each step where it can run; at most eight minutes of a GPU for each.

    python -m benchmarks.gpu.sequence pack              elsewhere: micro-kernels with machine code
    python benchmarks/gpu/sequence.py measure           on the GPU: records
    python -m benchmarks.gpu.sequence choose            elsewhere: a library, and a pack of what it chose
    python benchmarks/gpu/sequence.py compare           on the GPU: beside cuBLAS, torch.compile and Triton
    python -m benchmarks.gpu.sequence keep              elsewhere: into benchmarks/records/<device>

Names after the step take those workloads alone. What a step needs of the one before it, and what it makes, is
in ``build/gpu/NAME``; on a GPU's machine results can go elsewhere by ``--results``. A workload that fails
costs itself: the others go on, and the last line says which failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# In this order: the first three are what a short loan of a GPU must give.
WORKLOADS = (
    "bert-dense",
    "bert-bmm-qk",
    "bert-dense-fp16",
    "bert-bmm-pv",
    "bert-dense-ffn1",
    "bert-dense-ffn2",
    "bert-dense-proj",
    "bert-dense-hidden",
    "bert-dense-ffn1-gelu",
    "bert-dense-proj-residual",
    "dense-rows",
    "dense-odd",
    "two-dims",
)
SECS = {"measure": 300, "compare": 150}
_GRACE_SECS = 120  # beyond those, for what was begun; a step that takes longer is ended
_RECORDS, _COMPARED = "records.jsonl", "compared.json"


def steps(
    name: str, folder: Path, results: Path, arch: str, secs: Mapping[str, int] = SECS
) -> dict[str, list[str]]:
    """The command of each step for one workload, ``keep`` left out.

    Parameters
    ----------
    folder, results : Path
        Where its packs are, and where what a GPU gives goes and is looked for.
    secs : mapping of str to int
        After how many seconds the steps on a GPU begin nothing new.
    """
    here, spec = str(Path(__file__).parent), f"examples/{name}.yaml"
    records = str(results / _RECORDS)
    return {
        "pack": ["-m", "benchmarks.gpu.pack", spec, "--arch", arch, "-o", str(folder / "pack")],
        "measure": [
            f"{here}/measure.py", str(folder / "pack"), "-o", records, "--secs", str(secs["measure"]),
        ],
        "choose": ["-m", "benchmarks.gpu.chosen", spec, records, str(folder)],
        "compare": [
            f"{here}/compare.py", str(folder / "chosen"),
            "-o", str(results / _COMPARED), "--secs", str(secs["compare"]),
        ],
    }  # fmt: skip


def run(command: list[str], limit: float | None) -> int | None:
    """Run a step, and end with it what it began; its status, None where it took longer than allowed."""
    process = subprocess.Popen(command, cwd=ROOT, preexec_fn=os.setpgrp)  # noqa: PLW1509 - no threads
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def keep(name: str, results: Path, kept: Path) -> Path:
    """Put a workload's records and comparison in the folder of the device that measured both.

    Raises
    ------
    SystemExit
        No device measured them, or not the same.
    """
    with (results / _RECORDS).open(encoding="utf-8") as stream:
        device: dict[str, Any] = json.loads(stream.readline())["device"]
    compared = json.loads((results / _COMPARED).read_text(encoding="utf-8"))
    if compared.get("wrong"):
        raise SystemExit(f"{results / _COMPARED}: wrong results: {compared['wrong'][0]}; none are kept")
    if device["synthetic"]:
        raise SystemExit(f"{results / _RECORDS}: synthetic ({device['name']}): no device measured them")
    if compared["device"] != device["name"]:
        raise SystemExit(
            f"{results}: records of {device['name']}, compared on {compared['device']}; run both on one GPU"
        )
    folder = kept / re.sub(r"[^a-z0-9]+", "-", device["name"].lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(results / _RECORDS, folder / f"{name}.jsonl")
    shutil.copyfile(results / _COMPARED, folder / f"{name}.json")
    return folder


def main() -> None:
    """Run one step for each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("step", choices=["pack", "measure", "choose", "compare", "keep"])
    parser.add_argument("names", nargs="*", default=list(WORKLOADS), help="of examples/; all by default")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--results", type=Path, help="instead of the folder, for what a GPU gives")
    parser.add_argument("--kept", type=Path, default=ROOT / "benchmarks" / "records")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--secs", type=int, help="for each workload on the GPU")
    given = parser.parse_args()
    secs = {step: given.secs or own for step, own in SECS.items()}
    failed: list[str] = []
    for name in given.names:
        folder, results = (place.resolve() / name for place in (given.folder, given.results or given.folder))
        results.mkdir(parents=True, exist_ok=True)
        if given.step == "keep":
            print(f"{keep(name, results, given.kept)}: {name}")
            continue
        print(f"{given.step} {name}", flush=True)
        command = steps(name, folder, results, given.arch, secs)[given.step]
        limit = secs[given.step] + _GRACE_SECS if given.step in secs else None
        status = run([sys.executable, *command], limit)
        if status != 0:
            failed.append(f"{name} ({f'ended with {status}' if status is not None else f'took {limit} s'})")
    if failed:
        raise SystemExit(f"{given.step}: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
