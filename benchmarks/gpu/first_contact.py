"""What a machine lacks for the whole of `sequence.py run`, found in seconds and said in one line each."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any

from lines import read_facts, read_lines

_PACKED_CUDA = 13000  # of the compiler that packs; older drivers load none of its code
_FULL_GPU = 100  # multiprocessors; a whole one of this size has more
_LEAST_FREE_GIB, _LEAST_DISK_GIB = 8.0, 1.0
_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def _queried(query: str) -> list[str]:
    """Lines of nvidia-smi; none where it cannot be asked."""
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def driver_version() -> int | None:
    """The newest CUDA that the driver knows, as 13000 for 13.0; None without a driver."""
    version = ctypes.c_int()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value if status == 0 else None


def _of_driver(version: int | None) -> tuple[list[str], list[str]]:
    if version is None or version >= _PACKED_CUDA:
        return [], []
    text = f"the driver is for CUDA {version // 1000}.{version % 1000 // 10}, packed code for CUDA 13.0"
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return [f"{text}, and there is no nvcc on PATH to compile it anew; update the driver"], []
    return [], [f"{text}: {nvcc} compiles each workload anew first, and has to be of the driver's CUDA"]


def _of_gpu(torch: Any, archs: Iterable[str]) -> tuple[list[str], list[str]]:
    properties = torch.cuda.get_device_properties(0)
    own = f"{properties.major}{properties.minor}"
    wrong = sorted({arch for arch in archs if arch.removeprefix("sm_").rstrip("a") != own})
    fatal = [
        f"the GPU is {properties.name}, of sm_{own}; packs are for {arch}: pack again with --arch sm_{own}"
        for arch in wrong
    ]
    warnings = []
    num_sms = properties.multi_processor_count
    if "MIG" in properties.name or num_sms < _FULL_GPU:
        warnings.append(f"{properties.name} has {num_sms} multiprocessors: a part of a GPU, or a small one")
    free = torch.cuda.mem_get_info()[0] / 2**30
    if free < _LEAST_FREE_GIB:
        warnings.append(f"{free:.1f} GiB of the GPU's memory are free; large shapes may not fit")
    others = [
        line for line in _queried("compute-apps=pid,used_memory") if line.split(",")[0] != str(os.getpid())
    ]
    if others:
        warnings.append(f"{len(others)} other processes use the GPU: what is measured is not alone")
    return fatal, warnings


def _of_programs() -> tuple[list[str], list[str]]:
    fatal, warnings = [], []
    if importlib.util.find_spec("numpy") is None:
        fatal.append("NumPy is not installed for this Python: choosing needs it; put its wheel on PYTHONPATH")
    if importlib.util.find_spec("triton") is None:
        warnings.append(
            "Triton is not installed: it is left out of the comparison, and so is what compiles by it"
        )
    if not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        warnings.append("there is no C compiler: Triton and torch.compile fail, and are left out")
    return fatal, warnings


def problems(torch: Any, packs: Iterable[Path], results: Path) -> tuple[list[str], list[str]]:
    """What keeps all of it from running, and what only makes it less; a line each.

    Parameters
    ----------
    packs : iterable of Path
        Folders of packs.
    results : Path
        Where results are written.
    """
    found = [
        _of_programs(),
        _of_driver(driver_version()),
        _of_gpu(torch, {str(read_facts(pack)["arch"]) for pack in packs}),
    ]
    fatal, warnings = ([line for own in found for line in own[place]] for place in (0, 1))
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
        free = shutil.disk_usage(results).free / 2**30
    except OSError as error:
        fatal.append(f"{results}: cannot be written ({error.strerror}); give another --results")
    else:
        if free < _LEAST_DISK_GIB:
            warnings.append(f"{results}: {free:.1f} GiB are free on its disk")
    return fatal, warnings


def state_of_gpu() -> dict[str, str]:
    """Clocks, power and what holds clocks back, as nvidia-smi has them; empty where it cannot be asked."""
    names = (
        "clocks.sm",
        "clocks.max.sm",
        "power.limit",
        "clocks_event_reasons.active",
        "mig.mode.current",
    )
    lines = _queried(f"gpu={','.join(names)}")
    return dict(zip(names, map(str.strip, lines[0].split(",")), strict=False)) if lines else {}


def use_caches(environment: MutableMapping[str, str], folder: Path) -> None:
    """Have Triton and torch.compile keep what they compile in a folder, where nothing else is said."""
    for name in _CACHES:
        environment.setdefault(name, str(folder / name.partition("_")[0].lower()))


def set_aside(results: Path, pack: Path, device: str) -> str | None:
    """Move a workload's results away that are of another GPU or commit; the line that says so, or None."""
    lines = read_lines(results / "records.jsonl")
    if not lines:
        return None
    header, commit = lines[0], read_facts(pack)["commit"]
    own = header["device"]["name"], header["made"]["commit"]
    if own == (device, commit):
        return None
    number = 1
    while (place := results.with_name(f"{results.name}.aside{number}")).exists():
        number += 1
    results.rename(place)
    return f"{results.name}: results of {own[0]}, commit {own[1]}, are not gone on with; they are in {place}"


def check(torch: Any, packs: Iterable[Path], results: Path) -> None:
    """Say what is amiss, and end where nothing can be measured.

    Raises
    ------
    SystemExit
        Something keeps all workloads from running.
    """
    fatal, warnings = problems(torch, packs, results)
    for line in warnings:
        print(f"note: {line}", flush=True)
    if fatal:
        raise SystemExit("\n".join(f"cannot measure here: {line}" for line in fatal))
