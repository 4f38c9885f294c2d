"""The driver of ``emulated_driver.c``, under the name of the real one: once in a process, as that is."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin

_NAME = "libcuda.so.1"
_SOURCE = Path(__file__).with_suffix(".c")


def load_driver() -> ctypes.CDLL:
    """The driver, without kernels and as it was when it was new; skips where there is a real one."""
    # At its first text NVRTC looks for a driver, and in one for functions that this one lacks.
    compile_cubin('extern "C" __global__ void nothing() {}', CudaTarget("sm_90"))
    try:
        found = ctypes.CDLL(_NAME)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="dietcode-driver-")) / _NAME
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{_NAME}", str(_SOURCE), "-o", str(path)]
        subprocess.run(command, check=True)
        found = ctypes.CDLL(str(path))
    if not hasattr(found, "register_kernel"):
        pytest.skip("this machine has a driver, which would be found first")
    found.reset()
    return found


def register(driver: ctypes.CDLL, kernels: Any, names: Sequence[str]) -> None:
    """Functions of an emulated text, see ``emulation.compiled``."""
    for name in names:
        driver.register_kernel(name.encode(), getattr(kernels, f"call_{name}"), kernels.emulate)
