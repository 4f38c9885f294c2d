"""All workloads: packed where there is a compiler, run on the GPU by one command, kept where they are shown.

    python3 -m benchmarks.gpu.sequence pack          elsewhere: micro-kernels with machine code, and counts
    python3 benchmarks/gpu/sequence.py run           on the GPU: measures, chooses, compares
    python3 -m benchmarks.gpu.sequence keep          elsewhere: into benchmarks/records/<device>

`run` begins with what says most, gives each workload its share of ``--secs``, and ends in time; it may end
at any moment and be run again: what is done is not done again, and what `benchmarks/records` has of this GPU
is left out. Names after the step take those workloads alone. Packs are in ``build/gpu/NAME/pack``; what
`run` makes goes to ``build/gpu/NAME``, or into ``--results``. A workload that fails costs itself: the others
go on, and the last line says which failed.
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
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from device import need_gpu
from first_contact import check, set_aside, state_of_gpu, use_caches

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
WORKLOADS: dict[str, float] = {
    "bert-dense": 1.5,
    "bert-bmm-qk": 1.0,
    "bert-dense-fp16": 1.5,
    "resnet50-conv3x3-nhwc-fp16": 1.0,
    "bert-bmm-qk-fp16": 1.0,
    "bert-dense-bf16": 1.0,
    "attention-fp16": 1.0,
    "swiglu-fp16": 1.0,
    "attention-decode-fp16": 1.0,
    "bert-bmm-pv": 0.7,
    "bert-bmm-pv-fp16": 0.7,
    "resnet50-conv1x1-nhwc-fp16": 0.7,
    "bert-dense-ffn1": 0.7,
    "bert-dense-ffn2": 0.7,
    "bert-dense-proj": 0.7,
    "bert-dense-hidden": 0.7,
    "bert-dense-ffn1-gelu": 0.7,
    "bert-dense-proj-residual": 0.7,
    "dense-rows": 0.5,
    "dense-odd": 0.5,
    "two-dims": 0.5,
}
"""Examples, those that say most first, and their shares of the time."""
SECS = 540  # of a run: a call of ten minutes, less what it takes to begin and to copy results
_LEAST_SECS = 40.0  # a workload with less is left to the next run
_MEASURING = 0.5  # of a workload's share, at which measuring begins nothing new
_LATE_SECS = 25.0  # what was begun by then may take; a step that takes longer is ended
_CHOOSE_SECS = 120.0
_RECORDS, _COMPARED, _PACK, _CHOSEN, _ALONE = (
    "records.jsonl",
    "compared.json",
    "pack",
    "chosen",
    "alone.jsonl",
)
_ALONE_SHARE = (
    0.15  # of a workload's share, for MetaSchedule's kernels of single shapes, where there are some
)
_ARCHIVE_BYTES = 16 << 20  # which a machine may not give back
_MIB = 64  # that may be taken along: the working tree and the packs
_SPARE_BYTES = 1 << 20


def run(command: Sequence[str], limit: float | None) -> int | None:
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


def steps(pack: Path, results: Path, secs: Mapping[str, float]) -> dict[str, list[str]]:
    """The command of each step on the GPU for one workload.

    Parameters
    ----------
    results : Path
        Its own folder, for what the steps make and read.
    secs : mapping of str to float
        After how many seconds measuring, trials of single shapes and comparing begin nothing new.
    """
    records, alone, chosen = (str(results / name) for name in (_RECORDS, _ALONE, _CHOSEN))
    return {
        "measure": [f"{HERE}/measure.py", str(pack), "-o", records, "--secs", f"{secs['measure']:g}"],
        "alone": [f"{HERE}/alone.py", str(pack), "-o", alone, "--secs", f"{secs['alone']:g}"],
        "choose": [f"{HERE}/choose.py", str(pack), records, chosen, "--alone", alone],
        "compare": [
            f"{HERE}/compare.py", chosen, "-o", str(results / _COMPARED), "--secs", f"{secs['compare']:g}",
        ],
    }  # fmt: skip


def run_workload(pack: Path, results: Path, share: float, end: float) -> str | None:
    """Measure, choose and compare one workload, from where an earlier run ended; why it failed, or None.

    Parameters
    ----------
    share : float
        Seconds for it.
    end : float
        When all has to end, by `time.monotonic`.
    """
    results.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()

    def step(name: str, secs: float, late_secs: float) -> str | None:
        limit = min(secs + late_secs, end - time.monotonic())
        if limit <= 0:
            return f"{name}: time is up"
        command = steps(pack, results, dict.fromkeys(("measure", "alone", "compare"), secs))[name]
        status = run([sys.executable, *command], limit)
        return None if status == 0 else f"{name}: {f'ended with {status}' if status else f'{limit:.0f} s'}"

    if not (results / _CHOSEN).is_dir():
        problem = step("measure", _MEASURING * share, _LATE_SECS)  # what it wrote may do all the same
        if (pack / "alone.json").is_file():  # it costs one baseline where it fails
            problem = step("alone", _ALONE_SHARE * share, _LATE_SECS) or problem
        problem = step("choose", 0.0, _CHOOSE_SECS) or problem
        if not (results / _CHOSEN).is_dir():
            return problem
    # What is late is taken off the next ones' shares; the last one has none behind it.
    now = time.monotonic()
    left = max(1.0, min(share - (now - started), end - now - _LATE_SECS))
    return step("compare", left, _LATE_SECS)


def folder_of(device: str, kept: Path) -> Path:
    """Where what a device measured is kept."""
    return kept / re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def compared(results: Path) -> dict[str, Any]:
    """What is known of a workload's comparison; nothing where it was not begun."""
    path = results / _COMPARED
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return known


def is_done(known: Mapping[str, Any], device: str) -> bool:
    """Whether a comparison on this GPU has all of its rows."""
    return bool(known.get("complete")) and known["device"] == device


def run_all(
    names: Sequence[str], folder: Path, results: Path, kept: Path, secs: float, archive: Path | None
) -> list[str]:
    """Run every workload that is packed and not done; returns a line for each that failed."""
    end = time.monotonic() + secs
    torch = need_gpu()
    device = torch.cuda.get_device_properties(0).name
    check(torch, [path for name in names if (path := folder / name / _PACK).is_dir()], results)
    use_caches(os.environ, folder / "caches")
    print(f"{device}: {json.dumps(state_of_gpu())}", flush=True)
    left: list[str] = []
    failed: list[str] = []
    for name in names:
        own = folder_of(device, kept) / f"{name}.json"
        if own.is_file() and json.loads(own.read_text(encoding="utf-8")).get("complete", True):
            print(f"{name}: is in {own.parent}")
        elif is_done(compared(results / name), device):
            print(f"{name}: is done")
        elif (folder / name / _PACK).is_dir():
            left.append(name)
            aside = set_aside(results / name, folder / name / _PACK, device)
            if aside is not None:
                print(aside, flush=True)
    while left:
        seconds = end - time.monotonic()
        share = seconds * WORKLOADS.get(left[0], 1.0) / sum(WORKLOADS.get(name, 1.0) for name in left)
        if seconds < _LEAST_SECS:
            print(f"time is up; run again for {', '.join(left)}")
            break
        name = left.pop(0)
        print(f"{name}: {max(share, _LEAST_SECS):.0f} s", flush=True)
        problem = run_workload(folder / name / _PACK, results / name, max(share, _LEAST_SECS), end)
        failed += [] if problem is None else [f"{name} ({problem})"]
        print(line_of_results(name, compared(results / name)), flush=True)
        if archive is not None:
            write_archive(archive, results, names)
    return failed


def line_of_results(name: str, known: Mapping[str, Any]) -> str:
    """One line of what was compared."""
    facts = known.get("summary") or {}
    mean, worst = facts.get("geometric_mean"), facts.get("worst")
    if mean is None or worst is None:
        return f"{name}: nothing is compared yet"
    whole = "all" if known.get("complete") else "a part"
    if (running := known.get("running")) is not None:
        whole += f"; ended in {running['baseline']}, at instance {running['index']}"
    return (
        f"{name}: {mean:.2f} in geometric mean, {worst:.2f} at worst, over {facts['num_instances']}; {whole}"
    )


def write_archive(path: Path, results: Path, names: Sequence[str]) -> None:
    """Write one file of all results, in the place of the last; ``tar xzf`` in a folder brings them back.

    What was chosen is left out of what is done, since nothing goes on from it.
    """
    part = path.with_name(f"{path.name}.part")
    with tarfile.open(part, "w:gz") as archive:
        for name in names:
            is_whole = compared(results / name).get("complete")
            for found in (results / name / one for one in (_RECORDS, _ALONE, _COMPARED, _CHOSEN)):
                if found.exists() and not (is_whole and found.name == _CHOSEN):
                    archive.add(found, arcname=f"{name}/{found.name}")
    part.replace(path)
    if path.stat().st_size > _ARCHIVE_BYTES:
        print(
            f"{path}: {path.stat().st_size >> 20} MiB; {_ARCHIVE_BYTES >> 20} MiB may be all that comes back"
        )


def keep(name: str, results: Path, kept: Path) -> Path:
    """Put a workload's records and comparison in the folder of the device that measured both.

    Raises
    ------
    SystemExit
        No device measured them, or not the same.
    """
    with (results / _RECORDS).open(encoding="utf-8") as stream:
        device: dict[str, Any] = json.loads(stream.readline())["device"]
    known = compared(results)
    if known.get("wrong"):
        raise SystemExit(f"{results / _COMPARED}: wrong results: {known['wrong'][0]}; none are kept")
    if device["synthetic"]:
        raise SystemExit(f"{results / _RECORDS}: synthetic ({device['name']}): no device measured them")
    if known["device"] != device["name"]:
        raise SystemExit(
            f"{results}: records of {device['name']}, compared on {known['device']}; run both on one GPU"
        )
    folder = folder_of(device["name"], kept)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(results / _RECORDS, folder / f"{name}.jsonl")
    shutil.copyfile(results / _COMPARED, folder / f"{name}.json")
    if (results / _ALONE).is_file():
        shutil.copyfile(results / _ALONE, folder / f"{name}.alone")
    return folder


def pack_all(
    names: Sequence[str], folder: Path, arch: str, most: int, trials: int, limit: int, earlier: Path | None
) -> list[str]:
    """Pack every workload; returns a line for each that failed, or that is too large with those before it.

    Parameters
    ----------
    earlier : Path, optional
        Results of a run on the GPU, or a folder of kept records, which say what is packed.
    """
    failed = []
    records: list[str] = []
    for known, path in [] if earlier is None else earlier_records(earlier):
        records += ["--records", f"examples/{known}.yaml", str(path)]
    for name in names:
        print(f"pack {name}", flush=True)
        options = ["--arch", arch, "--most", str(most), "--trials", str(trials), *records]
        options += ["-o", str(folder / name / _PACK)]
        status = run([sys.executable, "-m", "benchmarks.gpu.pack", f"examples/{name}.yaml", *options], None)
        failed += [] if status == 0 else [f"{name} (ended with {status})"]
    return failed + leave_out(folder, limit - tree_bytes() - _SPARE_BYTES)


def earlier_records(folder: Path) -> list[tuple[str, Path]]:
    """Workloads and their records: of a run's results, or as `keep` puts them.

    Raises
    ------
    SystemExit
        There are none.
    """
    found = [(path.parent.name, path) for path in sorted(folder.glob(f"*/{_RECORDS}"))]
    found += [(path.stem, path) for path in sorted(folder.glob("*.jsonl"))]
    if not found:
        raise SystemExit(
            f"{folder}: no records in it; give the results of a run, or a folder of benchmarks/records"
        )
    return found


def tree_bytes() -> int:
    """Bytes of the files that git knows, which are taken along too; 0 outside of a repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum((ROOT / name).stat().st_size for name in listed if name and (ROOT / name).is_file())


def leave_out(folder: Path, limit: int) -> list[str]:
    """Move the packs that are too many for a limit beside the folder, those that say least first.

    Parameters
    ----------
    limit : int
        Bytes that all packs may have.

    Returns
    -------
    list of str
        A line for each that was moved.
    """
    order = {name: place for place, name in enumerate(WORKLOADS)}
    found = sorted(folder.glob(f"*/{_PACK}"), key=lambda path: order.get(path.parent.name, len(order)))
    total, moved = 0, []
    for path in found:
        own = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        print(f"{path.parent.name}: {own / 2**20:.1f} MiB")
        if total + own <= limit:
            total += own
            continue
        place = folder.with_name(f"{folder.name}-left-out") / path.parent.name / _PACK
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.rename(place)
        moved.append(f"{path.parent.name} (does not fit: {own / 2**20:.1f} MiB; moved to {place})")
    print(f"{len(found) - len(moved)} packs, {total / 2**20:.1f} of {limit / 2**20:.1f} MiB beside the tree")
    return moved


def main() -> None:
    """Run one step for each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("step", choices=["pack", "run", "keep"])
    parser.add_argument("names", nargs="*", default=list(WORKLOADS), help="of examples/; all by default")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu", help="where packs are")
    parser.add_argument("--results", type=Path, help="instead of the folder, for what a GPU gives")
    parser.add_argument("--kept", type=Path, default=ROOT / "benchmarks" / "records")
    parser.add_argument("--archive", type=Path, help="run: one .tar.gz of all results, written as they come")
    parser.add_argument("--arch", default="sm_90a", help="pack: of the GPU")
    parser.add_argument("--most", type=int, default=200, help="pack: micro-kernels of a workload")
    parser.add_argument("--trials", type=int, default=16, help="pack: of MetaSchedule for one shape alone")
    parser.add_argument("--mib", type=float, default=_MIB, help="pack: of the tree and all packs together")
    parser.add_argument(
        "--earlier",
        type=Path,
        help="pack: results of a run, or kept records, by which is chosen what is packed",
    )
    parser.add_argument("--secs", type=float, default=SECS, help="run: all of its time")
    given = parser.parse_args()
    folder, results = (path.resolve() for path in (given.folder, given.results or given.folder))
    failed: list[str] = []
    if given.step == "keep":
        for name in given.names:
            if compared(results / name):
                print(f"{keep(name, results / name, given.kept)}: {name}")
    elif given.step == "pack":
        limit = int(given.mib * 2**20)
        failed = pack_all(given.names, folder, given.arch, given.most, given.trials, limit, given.earlier)
    else:
        failed = run_all(given.names, folder, results, given.kept, given.secs, given.archive)
    if failed:
        raise SystemExit(f"{given.step}: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
