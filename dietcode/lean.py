"""Processes that start quickly: where PyTorch is installed, TVM imports it, longer than all of TVM itself."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path

_PLACE = str(Path(__file__).with_name("without_torch"))  # its `torch` cannot be imported


def without_torch(environment: Mapping[str, str]) -> dict[str, str]:
    """These variables for a Python process that finds no PyTorch, nor do those that it starts.

    Nothing that builds or measures uses it, and one tuning run has ten processes or more.
    """
    return {**environment, "PYTHONPATH": os.pathsep.join([_PLACE, *_other_paths(environment)])}


def with_torch(environment: Mapping[str, str]) -> dict[str, str]:
    """These variables for a process that finds PyTorch again, where it is installed."""
    return {**environment, "PYTHONPATH": os.pathsep.join(_other_paths(environment))}


@contextlib.contextmanager
def children_without_torch() -> Iterator[None]:
    """Processes that are started meanwhile, by whatever means, find no PyTorch."""
    before = os.environ.get("PYTHONPATH")
    os.environ.update(without_torch(os.environ))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before


def leave_torch_out() -> None:
    """This process finds no PyTorch from now on, unless it has it already."""
    leave_disco_out()
    if "torch" not in sys.modules and _PLACE not in sys.path:
        sys.path.insert(0, _PLACE)


def leave_disco_out() -> None:
    """TVM does without its distributed runtime, which it tries to import and does not have.

    Finding that out takes a quarter of a second: the error has a backtrace through all of the compiler.
    """
    sys.modules.setdefault("tvm.runtime.disco", None)  # type: ignore[arg-type] # it cannot be imported


def has_torch() -> bool:
    """Whether it is installed, also in a process that does not find it."""
    return PathFinder.find_spec("torch", [path for path in sys.path if path != _PLACE]) is not None


def _other_paths(environment: Mapping[str, str]) -> list[str]:
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and path != _PLACE]
