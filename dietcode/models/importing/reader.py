"""Reading a model in a process of its own: that one finds PyTorch and ONNX, the one that tunes neither."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.confinement.left import open_left
from dietcode.confinement.read import most_bytes, most_secs, size_of
from dietcode.errors import DietCodeError, ModelError
from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph
from dietcode.lean import collect_seldom, python_command, with_torch
from dietcode.lifeline import die_with_parent
from dietcode.workload.text import one_line

# By the suffix of a file, the extra that reads it, and what that is.
KINDS = {
    ".pt2": ("models", "reading a program of torch.export"),
    ".onnx": ("onnx", "reading a model of ONNX"),
}
_ALLOWED = "model.pt2, of torch.export.save, or model.onnx"
_MAX_GRAPH_BYTES, _MAX_REFUSAL_CHARS = 1 << 30, 2000
# As Python, C++ and PyTorch say that there is no more memory.
_NO_MEMORY = re.compile(r"MemoryError|bad_alloc|[Cc]an(?:no|')t allocate memory|Unable to allocate")
GRAPH, _WEIGHTS, _REFUSAL = _ANSWERS = "graph.json", "weights.safetensors", "refusal"


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
    visible = path.parent if path.suffix == ".onnx" else path  # weights of ONNX may lie beside it
    with reading(path, __name__, [str(path), name, ranges], visible) as place:
        try:
            graph = read_graph(json.loads(_left(place / GRAPH, _MAX_GRAPH_BYTES)))
            return graph, read_weights(place) if graph.weights else {}
        except (ValueError, OSError, RecursionError, MemoryError) as error:
            raise ModelError(f"{path}: cannot be read: {one_line(str(error)) or 'too large'}") from error


@contextlib.contextmanager
def reading(path: Path, module: str, asked: Sequence[Any], visible: Path | None = None) -> Iterator[Path]:
    """Run a module in a child process, and give the folder that it wrote to.

    Parameters
    ----------
    path : Path
        What is read, for messages.
    module : str
        Its ``__main__`` calls `answer`.
    asked : sequence
        Plain data for it.
    visible : Path, optional
        The process is confined, and may read this file or folder, since what is in it may run as it is read.
        By default it may do what this one may: the user's own code runs there.

    Raises
    ------
    ModelError
        It refused what it read, failed, or took more memory or time than a file of this size may.
    """
    with tempfile.TemporaryDirectory(prefix="dietcode-model-") as folder:
        place = Path(folder)
        own = json.dumps([os.getpid(), folder, *asked])
        variables, secs = with_torch(os.environ), None
        if visible is None:
            command = python_command(module, own)
        else:
            command = python_command("dietcode.confinement.read", module, str(visible), own)
            variables |= {"TMPDIR": folder}
            secs = most_secs(size_of(visible))
        try:
            done = subprocess.run(
                command,
                env=variables,
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=secs,
            )
        except subprocess.TimeoutExpired:
            raise ModelError(
                f"{path}: not read after {secs:.0f} s, the most for its size; export parts of the model"
            ) from None
        if not all(
            stat.S_ISREG(one.lstat().st_mode)
            for one in (place / name for name in _ANSWERS)
            if os.path.lexists(one)
        ):
            raise ModelError(f"{path}: cannot be read: what reads it left no files")
        refusal = place / _REFUSAL
        if refusal.exists() or done.returncode:
            raise ModelError(_reason(path, refusal, done, visible))
        yield place


def _reason(path: Path, refusal: Path, done: subprocess.CompletedProcess[str], visible: Path | None) -> str:
    """Return why a file could not be read, by what its reader wrote, or how it ended."""
    if refusal.exists():
        said = one_line(_left(refusal).decode(errors="replace"), _MAX_REFUSAL_CHARS)
    else:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        said = f"{path}: cannot be read: {one_line(last)}"
    if done.returncode != -signal.SIGKILL and not _NO_MEMORY.search(said):
        return said
    limit = "" if visible is None else f" of {most_bytes(size_of(visible)) / 2**30:.0f} GiB for its size"
    return (
        f"{path}: reading it takes more memory than there is, or than the limit{limit}; export parts of the "
        "model, or read it on a larger machine"
    )


def _left(path: Path, most: int = 1 << 16) -> bytes:
    """Return what the process that read the file has written: so many bytes of it."""
    with open_left(path) as stream:
        return stream.read(most)


def answer(read: Callable[..., tuple[Any, Mapping[str, Any]]]) -> None:
    """Write what a function reads to the folder that the parent gave, or why it refuses.

    Parameters
    ----------
    read : callable
        Takes what was asked; returns plain data and weights.
    """
    collect_seldom()
    parent, folder, *asked = json.loads(sys.argv[1])
    die_with_parent(parent)
    place = Path(folder)
    try:
        data, weights = read(*asked)
    except DietCodeError as error:
        (place / _REFUSAL).write_text(str(error))
        return
    (place / GRAPH).write_text(json.dumps(data))
    if weights:
        from safetensors.numpy import save_file

        save_file({name: np.asarray(one, order="C") for name, one in weights.items()}, place / _WEIGHTS)


def read_weights(place: Path) -> dict[str, Any]:
    """Return the weights that `answer` wrote; `ValueError` where it did not."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = place / _WEIGHTS
    try:
        return dict(load_file(path)) if path.exists() else {}
    except SafetensorError as error:
        raise ValueError(f"its weights: {error}") from error


def _imported(path: Path, name: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[Graph, dict[str, Any]]:
    """Return the graph and the weights of a file, by the importer of its kind."""
    if path.suffix == ".onnx":
        from dietcode.models.importing.onnx.file import load_onnx
        from dietcode.models.importing.onnx.model import import_onnx

        return import_onnx(load_onnx(path), path.parent, name, ranges)
    from dietcode.models.importing.exported import import_exported, load_exported

    return import_exported(load_exported(path), name, ranges)


def _read(path: str, name: str, ranges: Mapping[str, Sequence[int]]) -> tuple[Any, Mapping[str, Any]]:
    graph, weights = _imported(Path(path), name, {key: (low, high) for key, (low, high) in ranges.items()})
    return graph.to_json(), weights


if __name__ == "__main__":
    answer(_read)
