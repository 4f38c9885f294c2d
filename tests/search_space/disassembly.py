"""What NVIDIA's disassembler says of machine code."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest


def disassembled(cubin: bytes, folder: Path) -> str:
    """SASS of machine code, by NVIDIA's disassembler."""
    spec = importlib.util.find_spec("nvidia.cu13")
    roots = [Path(root) for root in (spec and spec.submodule_search_locations) or ()]
    found = [root / "bin" / "nvdisasm" for root in roots if (root / "bin" / "nvdisasm").is_file()]
    if not found:
        pytest.skip("nvidia-cuda-nvdisasm is not installed")
    path = folder / "kernels.cubin"
    path.write_bytes(cubin)
    return subprocess.run([str(found[0]), str(path)], check=True, capture_output=True, text=True).stdout
