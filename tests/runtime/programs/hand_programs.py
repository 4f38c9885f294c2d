"""Programs written by hand: their form, kernels of small sizes, bundles, and the same in Python."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from small_libraries import built_of, spec_data

import dietcode
from dietcode.runtime.manifest import MANIFEST, REPORT, WEIGHTS, file_facts, pretty_json
from dietcode.runtime.programs.loaded import LoadedProgram

Array = NDArray[Any]
H, NUM_WORDS, MAX_ROWS, MAX_BATCH = 16, 9, 4000, 24
ROW, NUMBER, SCALAR, PAIR = range(4)  # types
TYPES = [
    {"dtype": "float32", "shape": [H]},
    {"dtype": "int32", "shape": []},
    {"dtype": "float32", "shape": []},
    {"dtype": "float32", "shape": [2]},
]
LEAF, MERGE, JOIN, FIRST, HALVES = range(5)  # blocks
_MERGE = {
    "HL": {"gather": ["H", "left"]},
    "HR": {"gather": ["H", "right"]},
    "QL": {"einsum": ["HL", "V"], "dims": "mn"},
    "QR": {"einsum": ["HR", "V"], "dims": "mn"},
    "Q": {"add": ["QL", "QR"]},
    "h": {"tanh": "Q"},
}


@dataclass
class Tree:
    left: Tree | None
    right: Tree | None
    word: int


def leaf(word: int) -> Tree:
    return Tree(None, None, word)


def random_tree(rng: np.random.Generator, num_leaves: int) -> Tree:
    if num_leaves == 1:
        return leaf(int(rng.integers(NUM_WORDS)))
    first = int(rng.integers(1, num_leaves))
    return Tree(random_tree(rng, first), random_tree(rng, num_leaves - first), 0)


@functools.cache
def weights() -> dict[str, Array]:
    rng = np.random.default_rng(7)
    draw = {"E": (NUM_WORDS, H), "V": (H, H), "start": (H,)}
    return {name: 0.3 * rng.standard_normal(shape, np.float32) for name, shape in draw.items()}


def merged(left: Array, right: Array) -> Array:
    """What the block `MERGE` computes, in float64."""
    found: Array = np.tanh(weights()["V"].astype(np.float64) @ (left + right))
    return found


def encoded(tree: Tree) -> Array:
    if tree.left is None or tree.right is None:
        return weights()["E"][tree.word].astype(np.float64)
    return merged(encoded(tree.left), encoded(tree.right))


def move(source: str | None, rows: str | None, result: str, shape: Sequence[int], **fields: Any) -> Any:
    """A move of elements that lie one after the other."""
    at, to = fields.get("at", 0), fields.get("to", 0)
    strides = [1] * len(shape)
    layout = {"from": [at, strides], "to": [to, strides], "filler": fields.get("filler", 0.0)}
    return {"move": source, "rows": rows, "shape": list(shape), "result": result, **layout}


def merge_spec() -> str:
    data = spec_data("merge", op={"block": {"version": 1, "graph": _MERGE, "outputs": ["h"]}})
    del data["output"]
    tensors = {"H": "tu", "left": "m", "right": "m", "V": "nu"}
    data["tensors"] = {
        name: {"dims": dims, "dtype": "int32" if dims == "m" else "float32"} for name, dims in tensors.items()
    }
    data["tensors"]["V"]["constant"] = True
    rows = {"min": 2, "max": MAX_ROWS, "weights": {MAX_ROWS: 1.0}}
    data["shape_vars"] = {"M": {"min": 1, "max": MAX_BATCH}, "T": rows}
    return json.dumps(data | {"dims": {"m": "M", "n": H, "t": "T", "u": H}})


def _block(name: str, operands: list[int], results: list[int], *steps: Any, phase: int = 0) -> Any:
    return {"name": name, "phase": phase, "operands": operands, "results": results, "steps": list(steps)}


def _merge_step() -> Any:
    arguments = {"H": ["operand0", "T", H], "left": ["rows0", "B"], "right": ["rows1", "B"], "V": ["V", H, H]}
    return {
        "kernel": "merge",
        "arguments": {name: {"value": one[0], "shape": one[1:]} for name, one in arguments.items()},
        "results": [{"value": "next0", "shape": ["B", H]}],
        "variables": {"M": "B", "T": "T"},
    }


def blocks(with_kernel: bool = True) -> list[Any]:
    """`MERGE` without a kernel is its left operand."""
    merge = _merge_step() if with_kernel else move("operand0", "rows0", "next0", [H])
    return [
        _block("leaf", [NUMBER], [ROW], move("E", "ids0", "next0", [H])),
        _block("merge", [ROW, ROW], [ROW], merge),
        _block("join", [SCALAR, SCALAR], [PAIR], move("operand0", "rows0", "next0", [1]),
               move("operand1", "rows1", "next0", [1], to=1)),
        _block("first", [ROW], [SCALAR], move("operand0", "rows0", "next0", [1])),
        _block("halves", [PAIR], [SCALAR, SCALAR], move("operand0", "rows0", "next1", [1], at=1),
               move("operand0", "rows0", "kept", [1]), move("kept", None, "next0", [1])),
    ]  # fmt: skip


def lowest_block(**fields: Any) -> Any:
    """Takes over calls of `MERGE` on leaves; gives the right one, and `MERGE` without a kernel the left."""
    sources = {"lowest_of": {"block": MERGE, "sources": [[LEAF, 0, 0], [LEAF, 0, 1]]}}
    block = _block("lowest", [NUMBER, NUMBER], [ROW], move("E", "ids1", "next0", [H]))
    return {**block, **sources, **fields}


def function(name: str, parameters: int, code: list[Any], registers: int = 24) -> Any:
    lines = list(range(1, len(code) + 1))
    fields = {"name": name, "file": "hand.py", "parameters": parameters, "registers": registers}
    return {**fields, "code": code, "lines": lines}


def described(*functions: Any, with_kernel: bool = True, **fields: Any) -> dict[str, Any]:
    """A program whose entry is the first of some functions."""
    return {
        "format": "dietcode-program/1",
        "name": "hand",
        "max_rows": MAX_ROWS,
        "max_batch": MAX_BATCH,
        "entry": 0,
        "types": TYPES,
        "records": [{"name": "Tree", "fields": ["left", "right", "word"]}],
        "names": ["left", "right", "word"],
        "constants": [None, True, False, 0, 1, 2, -1, 0.5, "wrong", "other"],
        "tensors": [{"value": "start", "type": ROW}],
        "blocks": blocks(with_kernel),
        "functions": list(functions),
        "weights": {n: {"dtype": "float32", "shape": list(one.shape)} for n, one in weights().items()},
        "values": {"kept": {"dtype": "float32", "shape": ["B"]}},
    } | fields


NONE, TRUE, FALSE, ZERO, ONE, TWO, LAST, HALF, WRONG, OTHER = range(10)  # constants
ENCODE = function("encode", 1, [
    ["field", 1, 0, 0],
    ["const", 2, NONE],
    ["binary", 3, "is", 1, 2],
    ["else", 3, 7],
    ["field", 4, 0, 2],
    ["block", [5], LEAF, [4]],
    ["return", 5],
    ["call", 5, 0, [1]],  # 7
    ["field", 6, 0, 1],
    ["call", 6, 0, [6]],
    ["block", [5], MERGE, [5, 6]],
    ["return", 5],
])  # fmt: skip


def write_program(folder: Path, description: Mapping[str, Any]) -> Path:
    """Write the bundle of a program whose kernels are of `merge_spec`."""
    digest = "0a"
    text = json.dumps(description).replace('"kernel": "merge"', f'"kernel": "{digest}"')
    files = {"program.json": text.encode(), REPORT: pretty_json({"parts": []}), WEIGHTS: save(weights())}
    libraries = {}
    if '"kernel"' in text:
        source = built_of(merge_spec())
        shutil.copytree(source, folder / "libraries" / digest)
        libraries[digest] = {"manifest": file_facts((source / MANIFEST).read_bytes())["sha256"]}
    manifest = {
        "format": "dietcode-program/1",
        "name": "hand",
        "files": {name: file_facts(data) for name, data in files.items()},
        "libraries": libraries,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**files, MANIFEST: pretty_json(manifest)}.items():
        (folder / name).write_bytes(data)
    return folder


@functools.cache
def _bundle(text: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="dietcode-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_program(folder / "program", json.loads(text))


def load(*functions: Any, options: Mapping[str, Any] | None = None, **fields: Any) -> LoadedProgram:
    """A program of functions, the first of which is its entry, without a kernel if not said otherwise."""
    text = json.dumps(described(*functions, **{"with_kernel": False, **fields}))
    program = dietcode.load(_bundle(text), **(options or {}))
    assert isinstance(program, LoadedProgram)
    return program


def computed(parameters: int, *code: Any, **fields: Any) -> Callable[..., Any]:
    """What one function gives for one instance."""
    program = load(function("f", parameters, list(code)), **fields)
    return lambda *given: program([given if parameters > 1 else given[0]])[0]
