"""A machine that was borrowed, for every process that has this folder on PYTHONPATH.

It has a GPU, which is none; PyTorch and NumPy; and nothing of what compiles or serves.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

LACKING = (
    *("tvm", "tvm_ffi", "xgboost", "sklearn", "scipy", "sqlalchemy", "fastapi", "pydantic", "yaml"),
    *("rfc8785", "platformdirs", "typer", "rich", "httpx", "zstandard", "cloudpickle", "psutil", "cuda"),
)
_ROOT = Path(__file__).parents[3]


class _Lacking:
    """Finds nothing of what is not installed there."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}: it is not on this machine", name=name)


_find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (  # as it answers of what is not installed
    None if name.partition(".")[0] in LACKING else _find_spec(name, package)
)
sys.meta_path.insert(0, _Lacking)  # type: ignore[arg-type]
sys.path[:0] = [str(_ROOT / "benchmarks" / "gpu"), str(Path(__file__).parents[1])]
import cpu_as_gpu  # noqa: E402
import device  # noqa: E402
import watching  # noqa: E402


def _need_gpu() -> Any:
    import torch

    pretending = cpu_as_gpu.pretend(torch)
    vendor = os.environ.get("BORROWED_COMPILER")
    if vendor is not None:
        pretending.compile = {"traces": _traces(torch), "raises": _raises, "hangs": _hangs}[vendor]
    return pretending


def _traces(torch: Any) -> Any:
    """``torch.compile`` itself, without the half that makes machine code for a GPU."""
    return lambda function, dynamic, mode: torch.compile(function, dynamic=dynamic, backend="eager")


def _raises(function: Any, **_: Any) -> Any:
    def call(given: Any) -> Any:
        raise RuntimeError("no C compiler\nis found")

    return call


def _hangs(function: Any, **_: Any) -> Any:
    """A compiler that waits for its workers, and goes on where an exception comes."""

    def call(given: Any) -> Any:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(600)

    return call


_most = os.environ.get("BORROWED_LAUNCHES")
cpu_as_gpu.tick(device.Driver, None if _most is None else int(_most))
device.need_gpu = _need_gpu
device.rotations_for = lambda num_bytes: 2
watching.HANG_SECS = 300.0  # an emulated kernel takes its time where the processors are shared
