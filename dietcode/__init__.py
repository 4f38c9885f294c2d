"""DietCode: one tuning run for a whole range of shapes.

``dietcode.load`` opens a tuned library, ``dietcode.pull`` gets one from a server; neither needs a compiler.
The packages, in processing order: ``workload``, ``target``, ``search_space``, ``measure``, ``cost_model``,
``dispatcher``, ``library``, ``tuner``; ``runtime`` and ``client`` are what a deployed program imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dietcode._version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from dietcode import nn as nn
    from dietcode.errors import ProgramError
    from dietcode.models.exporting import export
    from dietcode.programs.module import Program, block, concurrent, map, program
    from dietcode.recursion.module import ChildSum, Recursion
    from dietcode.runtime.library import Library
    from dietcode.runtime.models.model import Model
    from dietcode.runtime.opening import load
    from dietcode.runtime.programs.loaded import LoadedProgram
    from dietcode.runtime.recorded.loaded import RecordedProgram
    from dietcode.runtime.recursion.loaded import LoadedRecursion
    from dietcode.runtime.recursion.structure import Structure

__all__ = [
    "ChildSum",
    "Library",
    "Model",
    "Program",
    "ProgramError",
    "Recursion",
    "Structure",
    "__version__",
    "block",
    "concurrent",
    "export",
    "load",
    "map",
    "program",
    "pull",
]


def pull(
    ref: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    server: str | None = None,
    token: str | None = None,
    num_threads: int | None = None,
    threads: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    program: Callable[..., Any] | None = None,
) -> Library | Model | LoadedRecursion | LoadedProgram | RecordedProgram:
    """Download a library, or take it from the cache, check it, and load it.

    Parameters
    ----------
    ref : str
        ``NAME`` for the latest version, or ``NAME@VERSION``.
    folder : path, optional
        Where to put it; by default the cache.
    server, token : str, optional
        By default ``$DIETCODE_SERVER``, or ``http://127.0.0.1:8000``, and ``$DIETCODE_TOKEN``.
    num_threads : int, optional
        Threads that a call uses at most, as for `load`.
    threads : str, optional
        Whose they are, as for `load`.
    weights : path, optional
        Of a model, whose weights a server does not have: the ``.safetensors`` file that ``dietcode submit``
        wrote, by default as `load` finds it.
    program : dietcode.Program, optional
        Of a recorded program: its function, as for `load`.

    Raises
    ------
    RequestError
        `ref` is none, or there is no such library or version.
    ServerError
        The server cannot be reached, or failed.
    LibraryError
        It is not signed by the server's key, what arrived is not what the manifest lists, or it cannot be
        written or loaded.
    TargetError
        This CPU lacks an instruction set that the code uses.
    """
    from dietcode.client import Client
    from dietcode.runtime.opening import load

    with Client(server, token=token) as client:
        path = client.pull(ref, folder)
        return load(path, num_threads=num_threads, threads=threads, weights=weights, program=program)


_MODULES = {
    **dict.fromkeys(("Library", "load"), "runtime.opening"),
    "Model": "runtime.models.model",
    "ProgramError": "errors",
    "Structure": "runtime.recursion.structure",
    "export": "models.exporting",
    **dict.fromkeys(("ChildSum", "Recursion"), "recursion.module"),
    **dict.fromkeys(("Program", "block", "concurrent", "map", "program"), "programs.module"),
}


def __getattr__(name: str) -> Any:
    """Import the runtime on first use, so that ``import dietcode`` stays cheap."""
    if name in _MODULES:
        found = getattr(importlib.import_module(f"dietcode.{_MODULES[name]}"), name)
        globals()[name] = found  # it is looked up once
        return found
    if name == "nn":
        return importlib.import_module("dietcode.nn")
    raise AttributeError(f"module 'dietcode' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what users take from here, imported or not: what completion shows."""
    return sorted([*__all__, "errors", "nn"])
