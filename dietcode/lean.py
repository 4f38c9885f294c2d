"""Processes that start quickly: where PyTorch is installed, TVM imports it, longer than all of TVM itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_PLACE = str(Path(__file__).with_name("without_torch"))  # its `torch` cannot be imported


def without_torch(environment: Mapping[str, str]) -> dict[str, str]:
    """These variables for a Python process that finds no PyTorch, nor do those that it starts.

    Nothing that builds or measures uses it, and one tuning run has ten processes or more.
    """
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**environment, "PYTHONPATH": os.pathsep.join([_PLACE, *(p for p in paths if p != _PLACE)])}
