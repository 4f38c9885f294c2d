"""Reading a model in a process of its own: that one finds PyTorch and ONNX, the one that tunes neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import DietCodeError, ModelError
from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph
from dietcode.lean import with_torch

# By the suffix of a file, the extra that reads it, and what that is.
KINDS = {
    ".pt2": ("models", "reading a program of torch.export"),
    ".onnx": ("onnx", "reading a model of ONNX"),
}
_ALLOWED = "model.pt2, of torch.export.save, or model.onnx"
_GRAPH, _WEIGHTS, _REFUSAL = "graph.json", "weights.safetensors", "refusal"


def read_model(path: Path, name: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[Graph, dict[str, Any]]:
    """Return the graph and the weights of a model's file, read by a child process.

    Raises
    ------
    ModelError
        There is no such file, it is of no known kind, or the model cannot be compiled.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such file; give {_ALLOWED}")
    if path.suffix not in KINDS:
        raise ModelError(f"{path}: a {path.suffix or 'nameless'} file; allowed: {_ALLOWED}")
    with tempfile.TemporaryDirectory(prefix="dietcode-model-") as folder:
        place = Path(folder)
        asked = json.dumps([str(path), name, ranges, folder])
        command = [sys.executable, "-m", __name__, asked]
        done = subprocess.run(
            command, env=with_torch(os.environ), check=False, capture_output=True, text=True, errors="replace"
        )
        refusal = place / _REFUSAL
        if refusal.exists():
            raise ModelError(refusal.read_text())
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ModelError(f"{path}: cannot be read: {last[:200]}")
        graph = read_graph(json.loads((place / _GRAPH).read_bytes()))
        return graph, _read_weights(place / _WEIGHTS, graph)


def _read_weights(path: Path, graph: Graph) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(path)) if graph.weights else {}


def _imported(path: Path, name: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[Graph, dict[str, Any]]:
    """Return the graph and the weights of a file, by the importer of its kind."""
    if path.suffix == ".onnx":
        from dietcode.models.importing.onnx.file import load_onnx
        from dietcode.models.importing.onnx.model import import_onnx

        return import_onnx(load_onnx(path), path.parent, name, ranges)
    from dietcode.models.importing.exported import import_exported, load_exported

    return import_exported(load_exported(path), name, ranges)


def _main(asked: str) -> None:
    """Read a model and write its graph and weights, or why it is refused."""
    path, name, ranges, folder = json.loads(asked)
    place = Path(folder)
    try:
        graph, weights = _imported(
            Path(path), name, {key: (low, high) for key, (low, high) in ranges.items()}
        )
    except DietCodeError as error:
        (place / _REFUSAL).write_text(str(error))
        return
    (place / _GRAPH).write_text(json.dumps(graph.to_json()))
    if weights:
        from safetensors.numpy import save_file

        save_file(weights, place / _WEIGHTS)


if __name__ == "__main__":
    _main(sys.argv[1])
