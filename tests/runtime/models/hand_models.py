"""Models written by hand, of host steps alone: no compiler, no library, and bundles of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.runtime.manifest import MANIFEST, MODEL, REPORT, WEIGHTS, file_facts, pretty_json
from dietcode.runtime.models.executable import read_executable
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.models.loading import BUNDLE_FORMAT, loaded_constants
from dietcode.runtime.models.model import Model

Types = Mapping[str, tuple[str, Sequence[Any]]]
_SIZES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "bool": 1}


def step(
    operator: str, operands: Iterable[Any], results: str, *, view: bool = False, **attributes: Any
) -> Any:
    """A host step; texts among the operands are values."""
    return {
        "host": operator,
        "operands": [{"value": one} if isinstance(one, str) else one for one in operands],
        "attributes": attributes,
        "results": results.split(),
        "view": view,
    }


def described(
    inputs: Types,
    steps: Sequence[Any],
    outputs: Sequence[str],
    *,
    values: Types,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    weights: Types | None = None,
    load: Sequence[Any] = (),
    **changes: Any,
) -> dict[str, Any]:
    """What ``model.json`` of a model holds; each value that a step computes has a storage of its own.

    Parameters
    ----------
    inputs, values, weights : mapping of str to (dtype, shape)
    ranges : mapping of str to (int, int)
    **changes
        Whole fields to replace.
    """
    inside = [
        name
        for one in steps
        if "host" in one and not one["view"]
        for name in one["results"]
        if name not in outputs
    ]
    sizes = [
        "*".join([str(_SIZES[values[name][0]]), *(f"({e})" for e in values[name][1])]) for name in inside
    ]
    many = {"tuple": ["*"] * len(outputs)}
    return {
        "format": "dietcode-model/1",
        "name": "by-hand",
        "dimensions": {n: {"min": low, "max": high} for n, (low, high) in (ranges or {}).items()},
        "inputs": _types(inputs),
        "weights": _types(weights or {}),
        "values": _types(values),
        "load": list(load),
        "steps": list(steps),
        "outputs": list(outputs),
        "signature": {
            "positional": list(inputs),
            "keyword": {},
            "output": many if len(outputs) > 1 else "*",
        },
        "storages": {
            "sizes": [[size] for size in sizes],
            "of": {name: number for number, name in enumerate(inside)},
            "max_bytes": 0,
        },
    } | changes


def _types(types: Types) -> dict[str, Any]:
    return {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in types.items()}


def scaled_sum(**changes: Any) -> dict[str, Any]:
    """``(x * 2 + 1)`` over [B, L], by way of one value inside."""
    return described(
        {"x": ("float32", ["B", "L"])},
        [step("mul", ["x", 2.0], "twice"), step("add", ["twice", 1.0], "y")],
        ["y"],
        values={"twice": ("float32", ["B", "L"]), "y": ("float32", ["B", "L"])},
        ranges={"B": (1, 8), "L": (0, 512)},
        **changes,
    )


def model_of(data: Mapping[str, Any], weights: Mapping[str, Any] | None = None) -> Model:
    """The model of a description, without a folder."""
    executable = read_executable(data)
    kernels = Kernels({}, {}, {}, loaded_constants(executable, weights or {}))
    return Model(Path("by-hand"), {}, executable, kernels, kernels)


def write_bundle(
    folder: Path, data: Mapping[str, Any], weights: Mapping[str, Any] | None = None, **changes: Any
) -> Path:
    """Write the bundle of a description.

    Parameters
    ----------
    weights : mapping of str to array
        None for a bundle without them.
    **changes
        Fields of the manifest to replace.
    """
    folder.mkdir(parents=True)
    files = {MODEL: pretty_json(data), REPORT: pretty_json({"name": data["name"], "parts": []})}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    if weights:
        from safetensors.numpy import save_file

        save_file({name: np.asarray(one, order="C") for name, one in weights.items()}, folder / WEIGHTS)
        files[WEIGHTS] = (folder / WEIGHTS).read_bytes()
    manifest = {
        "format": BUNDLE_FORMAT,
        "name": data["name"],
        "files": {name: file_facts(content) for name, content in files.items()},
        "libraries": {},
    }
    (folder / MANIFEST).write_bytes(pretty_json(manifest | changes))
    return folder
