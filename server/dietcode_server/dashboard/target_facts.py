"""Targets as people read them; templates use these as functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.target.cuda import ARCHS


def target_name(target: Mapping[str, Any]) -> str:
    """A processor and its cores, the architecture of a GPU, or what the spec says until it is resolved."""
    what = str(
        target.get("mcpu") or target.get("arch") or target.get("tag") or target.get("kind") or "unknown"
    )
    cores = target.get("num_cores")
    return what if cores is None else f"{what}, {cores} core{'' if cores == 1 else 's'}"


def target_facts(target: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the search knows of a device, each fact with its name."""
    if target.get("kind") == "cuda":
        return _of_gpu(str(target.get("arch")), target.get("num_sms"))
    found = {
        "cores": target.get("num_cores"),
        "vector": _vector(target),
        "L1 data": _cache(target.get("l1_bytes")),
        "L2": _cache(target.get("l2_bytes")),
    }
    return [(name, str(value)) for name, value in found.items() if value is not None]


def _of_gpu(arch: str, num_sms: int | None) -> list[tuple[str, str]]:
    if arch not in ARCHS:
        return []
    sm = ARCHS[arch]
    count = [] if num_sms is None else [("multiprocessors (SMs)", str(num_sms))]
    return [
        *count,
        ("threads of an SM", str(sm.max_threads)),
        ("registers of an SM", str(sm.num_registers)),
        ("shared memory of an SM", f"{sm.shared_bytes >> 10} KiB"),
        ("tensor cores multiply", ", ".join(sm.tensor_dtypes)),
    ]


def _vector(target: Mapping[str, Any]) -> str | None:
    width, registers = target.get("vector_bytes"), target.get("num_vector_registers")
    return None if width is None else f"{registers} registers of {8 * width} bits"


def _cache(num_bytes: int | None) -> str | None:
    if num_bytes is None:
        return None
    return (
        f"{num_bytes / 1024:g} KiB a core" if num_bytes < 1 << 20 else f"{num_bytes / (1 << 20):g} MiB a core"
    )
