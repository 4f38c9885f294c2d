"""What ``dietcode targets`` says of CUDA."""

from __future__ import annotations

from typing import Any

from dietcode.target.cuda import ARCHS
from dietcode.target.nvrtc import missing_packages, nvrtc_version
from dietcode.tuner.cuda import EXPERIMENTAL


def cuda_facts() -> dict[str, Any]:
    """What can be built for, which needs no GPU; and that `dietcode tune` measures on none."""
    missing = missing_packages()
    built = (
        f"missing {' '.join(missing)}: install dietcode[cuda]" if missing else f"by nvrtc {nvrtc_version()}"
    )
    return {
        "kind": "cuda",
        "archs": list(ARCHS),
        "build": not missing,
        "measure": False,
        "experimental": True,
        "reason": f"{built}; from a GPU's records; {EXPERIMENTAL}",
    }
