"""What `dietcode.programs.reader` reads of a Python file: objects, samples, and the cells of a recursion."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.cells import read_cells
from dietcode.graph.recursive_model import RecursiveModel, check_samples, check_sizes, default_sizes
from dietcode.graph.samples import Samples, read_samples
from dietcode.recursion.sampling import SUFFIX, samples_of
from dietcode.workload.text import clip, one_line

_ALLOWED = "FILE.py:NAME, where NAME is a dietcode.Recursion or dietcode.program of that file"


def file_and_object(model: str) -> tuple[Path, str]:
    """Return the file and the name of ``FILE.py:NAME``; raises ModelError where there is no such file."""
    file, _, attribute = model.rpartition(":")
    path = Path(file)
    if not attribute or path.suffix != ".py":
        raise ModelError(f"{model}: no object is named; give {_ALLOWED}")
    if not path.is_file():
        raise ModelError(f"{path}: no such file; give {_ALLOWED}")
    return path, attribute


def recursive_model(
    found: Mapping[str, Any], known: Samples | None, max_nodes: int | None, max_level: int | None
) -> RecursiveModel:
    """Return a recursion of what `cells_of` gave.

    Parameters
    ----------
    found : mapping
    known : Samples or None
        Those of a file.
    max_nodes, max_level : int or None
        The largest structures, where that is said.

    Raises
    ------
    ModelError
        The samples do not fit.
    """
    if found["samples"] is not None:
        known = read_samples(found["samples"])
    cells = read_cells(found["cells"])
    sizes = default_sizes(max_nodes, max_level, known)
    check_sizes(*sizes)
    if known is not None:
        check_samples(known, cells, sizes[0])
    return RecursiveModel(cells, *sizes, known)


def module_of(path: Path) -> Any:
    """Return the module of a Python file, which is run.

    Raises
    ------
    ModelError
        It is none, or running it failed.
    """
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: not a Python file; give {_ALLOWED}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        what = one_line(f"{type(error).__name__}: {error}", 200)
        raise ModelError(f"{path}: running it failed: {what}") from error
    return module


def cells_of(
    module: Any, path: Path, attribute: str, name: str, samples: str | None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the cells of a recursion of a module as data, with counted samples, and its weights.

    Parameters
    ----------
    module : module
    path : Path
        Its file, for messages.
    attribute, name : str
        What the module calls the recursion, and what it is called.
    samples : str or None
        The name of a list or function of the module.

    Raises
    ------
    ModelError
        There is no such object, or its cells cannot be compiled.
    """
    from dietcode.recursion.exporting import export_cells
    from dietcode.recursion.module import Recursion

    found = getattr(module, attribute, None)
    if not isinstance(found, Recursion):
        names = [key for key, value in vars(module).items() if isinstance(value, Recursion)]
        known = f"; it has {', '.join(names)}" if names else ""
        raise ModelError(f"{path}: {attribute} is {clip(found)}; allowed: a dietcode.Recursion{known}")
    counted = None if samples is None else _samples_of(module, samples, path).to_json()
    cells, weights = export_cells(found, name)
    return {"cells": cells.to_json(), "samples": counted}, weights


def _samples_of(module: Any, name: str, path: Path) -> Samples:
    """Count what a list of a file has, or what a function of it returns."""
    found = samples_in(module, name, path)
    if found is None:
        allowed = f"structures{SUFFIX}, or the name of a list or function of structures of that file"
        raise ModelError(f"--samples: given {clip(name)}, which {path} has not; allowed: {allowed}")
    return samples_of(found, name)


def samples_in(module: Any, name: str, path: Path) -> Any:
    """Return what a module has under a name, or what a function of that name returns; None for nothing."""
    found = getattr(module, name, None)
    if callable(found):
        try:
            found = found()
        except Exception as error:
            what = one_line(f"{type(error).__name__}: {error}", 200)
            raise ModelError(f"{path}: {name}() failed: {what}") from error
    return found
