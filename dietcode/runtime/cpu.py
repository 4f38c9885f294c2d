"""The CPU of this machine and its features, found without a compiler."""

from __future__ import annotations

import functools
import math
import os
import platform
from pathlib import Path

from dietcode.runtime.cgroups import quota_cores

# LLVM's name of a feature -> the flag in /proc/cpuinfo, where the two differ by more than '_' and '-'.
_CPUINFO_FLAGS = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "neon": "asimd",
    "fullfp16": "asimdhp",
    "dotprod": "asimddp",
}


@functools.lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """Flags of the first processor as in ``/proc/cpuinfo``, underscores left out; empty if unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in {"flags", "features"}:
            return frozenset(flag.replace("_", "") for flag in value.split())
    return frozenset()


def missing_features(features: list[str] | tuple[str, ...]) -> list[str]:
    """LLVM feature names of `features` that this CPU lacks; empty where the system lists no flags."""
    flags = cpu_flags()
    if not flags:
        return []
    return [f for f in features if _CPUINFO_FLAGS.get(f, f).replace("_", "").replace("-", "") not in flags]


@functools.lru_cache(maxsize=1)
def cpu_model() -> str:
    """Human name of the CPU, for instance ``Intel(R) Xeon(R) Processor``."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """Number of cores that this process may use: those of its affinity, within the quota of its cgroups."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = quota_cores()
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def cache_bytes(level: int, default: int) -> int:
    """Data or unified cache of `level` that the first core sees, in bytes; `default` if unknown."""
    root = Path("/sys/devices/system/cpu/cpu0/cache")
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for index in sorted(root.glob("index*")) if root.is_dir() else []:
        try:
            if int((index / "level").read_text()) != level:
                continue
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if text[:-1].isdigit() and text[-1:] in units:
            return int(text[:-1]) * units[text[-1]]
    return default
