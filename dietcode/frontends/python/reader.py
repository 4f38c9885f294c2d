"""Recording a program of a Python file, in a process of its own, which has PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.recorded_model import RecordedModel, read_recorded_model
from dietcode.models.importing.reader import GRAPH, answer, read_weights, reading
from dietcode.recursion.reader import file_and_object, module_of
from dietcode.workload.text import clip


def read_recorded(model: str, name: str, samples: str | None) -> tuple[RecordedModel, dict[str, Any]]:
    """Return the program ``FILE.py:NAME`` as samples record it, and its weights; the file is run.

    Parameters
    ----------
    model : str
    name : str
        What it is called.
    samples : str or None
        The name of a list or function of the file.

    Raises
    ------
    ModelError
        There is no such file or program, or it has nothing to compile.
    """
    path, attribute = file_and_object(model)
    with reading(path, __name__, [str(path), attribute, name, samples]) as place:
        return read_recorded_model(json.loads((place / GRAPH).read_bytes())), read_weights(place)


def program_of(module: Any, path: Path, attribute: str) -> Any:
    """Return a program of a module; raises ModelError where it is none."""
    from dietcode.programs.module import Program

    found = getattr(module, attribute, None)
    if not isinstance(found, Program):
        names = [key for key, value in vars(module).items() if isinstance(value, Program)]
        known = f"; it has {', '.join(names)}" if names else ""
        raise ModelError(f"{path}: {attribute} is {clip(found)}; allowed: a dietcode.program{known}")
    return found


def _read(file: str, attribute: str, name: str, samples: str | None) -> tuple[Any, Mapping[str, Any]]:
    from dietcode.frontends.python.modeling import record
    from dietcode.programs.reader import instances_of

    path = Path(file)
    module = module_of(path)
    program = program_of(module, path, attribute)
    found, formed = record(program, instances_of(module, path, attribute, samples), name)
    return found.to_json(), formed.blocks.weights.arrays


if __name__ == "__main__":
    answer(_read)
