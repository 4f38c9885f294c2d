"""Reading a program or a recursion out of a Python file, in a process of its own, which has PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.program_model import ProgramModel, read_program_model
from dietcode.graph.recursive_model import RecursiveModel, check_sizes, default_sizes
from dietcode.models.importing.reader import GRAPH, answer, read_weights, reading
from dietcode.recursion.reader import cells_of, file_and_object, module_of, recursive_model, samples_in
from dietcode.recursion.sampling import SUFFIX, load_samples
from dietcode.workload.text import clip

_SAMPLES = "the name of a list of instances, or of a function that returns one, of that file"


def read_object(
    model: str,
    name: str,
    max_nodes: int | None = None,
    max_level: int | None = None,
    samples: str | None = None,
) -> tuple[ProgramModel | RecursiveModel, dict[str, Any]]:
    """Return what ``FILE.py:NAME`` is, and its weights; the file is run.

    Parameters
    ----------
    model : str
    name : str
        What it is called.
    max_nodes, max_level : int or None
        Of a recursion: the largest structures, where that is said.
    samples : str or None
        The name of a list or function of the file; of a recursion also a file, ``*.npz``.

    Raises
    ------
    ModelError
        There is no such file or object, or it cannot be compiled.
    """
    if samples is None:
        check_sizes(*default_sizes(max_nodes, max_level))
    path, attribute = file_and_object(model)
    is_file = samples is not None and samples.endswith(SUFFIX)
    known = load_samples(Path(samples)) if samples is not None and is_file else None
    with reading(path, __name__, [str(path), attribute, name, samples]) as place:
        found = json.loads((place / GRAPH).read_bytes())
        if "cells" in found:
            return recursive_model(found, known, max_nodes, max_level), read_weights(place)
        if max_nodes is not None or max_level is not None:
            raise ModelError(
                f"{path}: {attribute} is a program; --max-nodes and --max-level are for recursions"
            )
        return read_program_model(found), read_weights(place)


def _read(file: str, attribute: str, name: str, samples: str | None) -> tuple[Any, Mapping[str, Any]]:
    from dietcode.programs.modeling import model_of
    from dietcode.programs.module import Program

    path = Path(file)
    module = module_of(path)
    found = getattr(module, attribute, None)
    if not isinstance(found, Program):
        is_file = samples is not None and samples.endswith(SUFFIX)
        return cells_of(module, path, attribute, name, None if is_file else samples)
    model, weights = model_of(found, instances_of(module, path, attribute, samples), name)
    return model.to_json(), weights


def instances_of(module: Any, path: Path, attribute: str, samples: str | None) -> list[Any]:
    """Return the samples of a program of a file; raises ModelError where there are none."""
    if samples is None:
        raise ModelError(f"{path}: {attribute} is a program, which needs --samples NAME: {_SAMPLES}")
    instances = samples_in(module, samples, path)
    if not isinstance(instances, list | tuple):
        given = f"{clip(samples)}, which is {clip(instances)}"
        raise ModelError(f"--samples: given {given}; allowed: {_SAMPLES}")
    return list(instances)


if __name__ == "__main__":
    answer(_read)
