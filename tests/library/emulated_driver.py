"""The driver of ``emulated_driver.c``, under the name of the real one: once in a process, as that is."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_NAME = "libcuda.so.1"
_SOURCE = Path(__file__).with_suffix(".c")


@functools.cache
def driver_folder() -> Path:
    """Where the driver is, for processes that are to find it too."""
    return Path(tempfile.mkdtemp(prefix="dietcode-driver-"))


def load_driver() -> ctypes.CDLL:
    """The driver, without kernels and as it was when it was new; skips where there is a real one."""
    try:
        found = ctypes.CDLL(_NAME)
    except OSError:
        path = driver_folder() / _NAME
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{_NAME}", str(_SOURCE), "-o", str(path), "-ldl"]
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
