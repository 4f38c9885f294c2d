"""Scripts in processes of their own, which load small libraries."""

from __future__ import annotations

import os
import subprocess
import sys

from small_libraries import ROOT

from dietcode.lean import with_torch, without_torch

PRELUDE = """
import os, sys, threading
import numpy as np

def check(library, rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 37), dtype=np.float32)
    w = rng.standard_normal((100, 37), dtype=np.float32)
    y = library(X=x, W=library.pack(W=w))
    right = x.astype(np.float64) @ w.astype(np.float64).T
    assert np.abs(y - right).max() <= 1e-5 * np.abs(right).max(), rows
"""
BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tvm", "xgboost", "sklearn", "scipy", "torch", "psutil", "zstandard"}:
            raise ImportError(f"{name} is blocked in this test")
sys.meta_path.insert(0, Blocked())
"""


def python(
    script: str, *arguments: object, env: dict[str, str] | None = None, timeout_secs: float = 60.0
) -> str:
    """Standard output of a script in a new process; it must succeed.

    It finds PyTorch only where it imports it itself: tvm-ffi would, which takes longer than all of these.
    """
    found = with_torch if "import torch" in script else without_torch
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        cwd=ROOT,
        env=found(os.environ) | (env or {}),
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
