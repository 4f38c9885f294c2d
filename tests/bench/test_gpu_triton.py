"""The Triton kernel that the GPU benchmark compares with, run by an interpreter of its language."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from needs import of_extra

pytest.importorskip("torch", reason=of_extra("bench"))
ROOT = Path(__file__).parents[2]
SCRIPT = """
import torch, triton_matmul
for dtype, most in ((torch.float32, 1e-4), (torch.float16, 2e-2), (torch.bfloat16, 2e-1)):
    a, b = torch.randn(3, 37, 50, dtype=dtype), torch.randn(3, 61, 50, dtype=dtype)
    found = triton_matmul.matmul(torch, a, b.transpose(1, 2))
    expected = a.double() @ b.double().transpose(1, 2)
    assert (found.double() - expected).abs().max() < most, dtype
"""


@pytest.mark.thorough
def test_the_triton_kernel_computes_and_reads_nothing_outside_of_its_tensors() -> None:
    """At extents that are no multiples of a tile, of strided tensors, in each dtype, tuned and after that."""
    path = f"{Path(__file__).parent / 'interpreted'}:{ROOT / 'benchmarks' / 'gpu'}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
