"""What a result says of the machine and the programs that it was measured with."""

from __future__ import annotations

import datetime
import platform
import subprocess
from typing import Any


def machine_facts(torch: Any) -> dict[str, Any]:
    """The GPU's name, the day, and versions of the driver and of what is compared with."""
    try:
        import triton

        of_triton = triton.__version__
    except ImportError:
        of_triton = None
    return {
        "device": torch.cuda.get_device_properties(0).name,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "triton": of_triton,
            "driver": _driver(),
        },
    }


def _driver() -> str | None:
    """The driver's version, as nvidia-smi tells it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.split() or [None])[0]
