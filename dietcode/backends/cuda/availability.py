"""What can be built for GPUs, and measured on one, here and now."""

from __future__ import annotations

from typing import Any

from dietcode.errors import TargetError
from dietcode.extras import what_to_install
from dietcode.measure.gpu import list_gpus
from dietcode.measure.store import is_measured
from dietcode.target.cuda import ARCHS
from dietcode.target.nvrtc import missing_packages, nvrtc_version

EXPERIMENTAL = "experimental: no record from a device yet"


def gpu_availability() -> dict[str, Any]:
    """Return what can be built for, which needs no GPU, and which GPU here is measured on."""
    missing = missing_packages()
    built = what_to_install("building", "cuda", missing) if missing else f"by nvrtc {nvrtc_version()}"
    facts: dict[str, Any] = {
        "kind": "cuda",
        "archs": list(ARCHS),
        "build": not missing,
        "measure": False,
        "experimental": True,
    }
    try:
        gpus = list_gpus()
    except TargetError as error:
        return facts | {"reason": f"{built}; {error}; {EXPERIMENTAL}"}
    usable = [gpu for gpu in gpus if gpu.target is not None and not gpu.is_synthetic]
    if not usable:
        found = f"cannot measure on {', '.join(map(str, gpus))}" if gpus else "no GPU here"
        return facts | {"reason": f"{built}; {found}: builds from what one measured; {EXPERIMENTAL}"}
    experimental = not any(is_measured(gpu.id) for gpu in usable)
    standing = f"; {EXPERIMENTAL}" if experimental else ""
    return facts | {
        "measure": not missing,
        "experimental": experimental,
        "device": ", ".join(f"{gpu}, {gpu.num_sms} SMs" for gpu in usable),
        "device_id": usable[0].id,
        "num_sms": usable[0].num_sms,
        "reason": f"{built}; measured on here{standing}",
    }
