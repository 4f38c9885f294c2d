"""Reading a recursion out of a Python file, in a process of its own: that one finds PyTorch."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import ModelError
from dietcode.models.importing.reader import GRAPH, answer, read_weights, reading
from dietcode.recursion.cells import Cells
from dietcode.workload.text import clip, one_line

_ALLOWED = "FILE.py:NAME, where NAME is a dietcode.Recursion of that file"


def read_recursion(model: str, name: str) -> tuple[Cells, dict[str, Any]]:
    """Return the cells and the weights of ``FILE.py:NAME``; the file is run.

    Raises
    ------
    ModelError
        There is no such file or object, or its cells cannot be compiled.
    """
    file, _, attribute = model.rpartition(":")
    path = Path(file)
    if not attribute or path.suffix != ".py":
        raise ModelError(f"{model}: no object is named; give {_ALLOWED}")
    if not path.is_file():
        raise ModelError(f"{path}: no such file; give {_ALLOWED}")
    with reading(path, __name__, [str(path), attribute, name]) as place:
        cells = Cells.from_json(json.loads((place / GRAPH).read_bytes()))
        return cells, read_weights(place)


def _read(file: str, attribute: str, name: str) -> tuple[Any, Mapping[str, Any]]:
    from dietcode.recursion.exporting import export_cells
    from dietcode.recursion.module import Recursion

    path = Path(file)
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
    found = getattr(module, attribute, None)
    if not isinstance(found, Recursion):
        names = [key for key, value in vars(module).items() if isinstance(value, Recursion)]
        known = f"; it has {', '.join(names)}" if names else ""
        raise ModelError(f"{path}: {attribute} is {clip(found)}; allowed: a dietcode.Recursion{known}")
    cells, weights = export_cells(found, name)
    return cells.to_json(), weights


if __name__ == "__main__":
    answer(_read)
