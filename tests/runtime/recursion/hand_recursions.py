"""Recursions written by hand: cells as block specs of small sizes, their bundles, and the same in float64."""

from __future__ import annotations

import atexit
import copy
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

from dietcode.runtime.manifest import MANIFEST, REPORT, WEIGHTS, file_facts, pretty_json
from dietcode.runtime.recursion.plan import PHASES
from dietcode.runtime.recursion.structure import Structure

Array = NDArray[Any]
H, NUM_IDS, MAX_NODES, MAX_LEVEL = 16, 9, 200, 24
_TENSORS = {
    "X": "ak", "P": "mgn", "E": "en", "L": "fn", "order": "m", "ids": "m", "left": "m", "right": "m",
    "H": "tu", "C": "tn", "W": "gnk", "U": "gnu", "V": "nu", "b": "gn",
}  # fmt: skip
_RANGES = {"m": "M", "a": "A", "t": "T"}
_SIZES = {"n": H, "u": H, "k": H, "e": NUM_IDS, "f": NUM_IDS + 1}


def _spec(name: str, graph: Mapping[str, Any], outputs: list[str], rows: int, gates: int = 1) -> str:
    """A block spec over the tensors that its graph reads."""
    fields = [one for node in graph.values() for one in node.values()]
    used = [one for ones in fields for one in (ones if isinstance(ones, list) else [ones])]
    tensors: dict[str, Any] = {}
    for one in dict.fromkeys(used):
        if one in _TENSORS:
            tensors[one] = {"dims": _TENSORS[one], "dtype": "int32" if _TENSORS[one] == "m" else "float32"}
            if one in "WUVb":
                tensors[one]["constant"] = True
    letters = {letter for one in tensors.values() for letter in one["dims"]}
    at_most = {"M": rows, "A": MAX_NODES, "T": MAX_NODES + 1}
    ranges = {
        variable: {"min": 1, "max": at_most[variable], "weights": {at_most[variable]: 1.0}}
        for letter, variable in _RANGES.items()
        if letter in letters
    }
    data = spec_data(name, op={"block": {"version": 1, "graph": dict(graph), "outputs": outputs}})
    del data["output"]
    ranges["M"] = {"min": 1, "max": rows}
    dims = {letter: _RANGES.get(letter) or _SIZES.get(letter, gates) for letter in sorted(letters)}
    return json.dumps(data | {"tensors": tensors, "shape_vars": ranges, "dims": dims})


_GATES = {"zi": {"slice": "Z", "axis": "g", "at": 0}, "zo": {"slice": "Z", "axis": "g", "at": 1},
          "zj": {"slice": "Z", "axis": "g", "at": 2}}  # fmt: skip
_LEAF = {
    "X1": {"gather": ["X", "order"]},
    "P1": {"einsum": ["X1", "W"], "dims": "mgn"},
    "Z": {"add": ["P1", "b"]},
    **_GATES,
    "i": {"sigmoid": "zi"},
    "o": {"sigmoid": "zo"},
    "j": {"tanh": "zj"},
    "c": {"mul": ["i", "j"]},
    "t": {"tanh": "c"},
    "h": {"mul": ["o", "t"]},
}
_LSTM = {
    "X1": {"gather": ["X", "order"]},
    "HL": {"gather": ["H", "left"]},
    "HR": {"gather": ["H", "right"]},
    "CL": {"gather": ["C", "left"]},
    "CR": {"gather": ["C", "right"]},
    "P1": {"einsum": ["X1", "W"], "dims": "mgn"},
    "QL": {"einsum": ["HL", "U"], "dims": "mgn"},
    "QR": {"einsum": ["HR", "U"], "dims": "mgn"},
    "Q": {"add": ["QL", "QR"]},
    "PQ": {"add": ["P1", "Q"]},
    "Z": {"add": ["PQ", "b"]},
    **_GATES,
    "zf": {"slice": "Z", "axis": "g", "at": 3},
    "i": {"sigmoid": "zi"},
    "o": {"sigmoid": "zo"},
    "j": {"tanh": "zj"},
    "f": {"sigmoid": "zf"},
    "new": {"mul": ["i", "j"]},
    "both": {"add": ["CL", "CR"]},
    "kept": {"mul": ["f", "both"]},
    "c": {"add": ["new", "kept"]},
    "t": {"tanh": "c"},
    "h": {"mul": ["o", "t"]},
}
_GATED = {  # what is hoisted comes as P
    "HL": {"gather": ["H", "left"]},
    "HR": {"gather": ["H", "right"]},
    "pa": {"slice": "P", "axis": "g", "at": 0},
    "pb": {"slice": "P", "axis": "g", "at": 1},
    "QL": {"einsum": ["HL", "V"], "dims": "mn"},
    "QR": {"einsum": ["HR", "V"], "dims": "mn"},
    "Q": {"add": ["QL", "QR"]},
    "s": {"add": ["Q", "pa"]},
    "y": {"tanh": "s"},
    "h": {"mul": ["y", "pb"]},
}
_CHAIN = {
    "E1": {"gather": ["E", "ids"]},
    "HL": {"gather": ["H", "left"]},
    "Q": {"einsum": ["HL", "V"], "dims": "mn"},
    "s": {"add": ["Q", "E1"]},
    "h": {"tanh": "s"},
}
_WORD = {"E1": {"gather": ["E", "ids"]}, "h": {"tanh": "E1"}}
_JOINED = {
    "HL": {"gather": ["H", "left"]},
    "HR": {"gather": ["H", "right"]},
    "QL": {"einsum": ["HL", "V"], "dims": "mn"},
    "QR": {"einsum": ["HR", "V"], "dims": "mn"},
    "Q": {"add": ["QL", "QR"]},
    "h": {"tanh": "Q"},
}
_OF_WORDS = {  # the same of leaves alone, whose products are rows of L
    "QL": {"gather": ["L", "left"]},
    "QR": {"gather": ["L", "right"]},
    "Q": {"add": ["QL", "QR"]},
    "h": {"tanh": "Q"},
}
_HOISTED = {"X1": {"gather": ["X", "order"]}, "P1": {"einsum": ["X1", "W"], "dims": "mgn"}}


@dataclass(frozen=True)
class Hand:
    """A recursion by hand.

    Attributes
    ----------
    description : dict
        ``recursion.json``, whose kernels are keys of `specs`.
    specs : dict of str to str
    weights : dict of str to array
    apply : callable
        Of weights, a node's input and its children's states (lists, zeros where there is none): its states,
        in float64.
    """

    description: dict[str, Any]
    specs: dict[str, str]
    weights: dict[str, Array]
    apply: Callable[..., Sequence[Array]]

    def expected(self, structure: Structure, x: Array | None) -> list[Array]:
        """The states of all nodes, in float64."""
        states = self.description["states"]
        found = [np.zeros((structure.num_nodes, *one["shape"])) for one in states]
        weights = {name: one.astype(np.float64) for name, one in self.weights.items()}
        slots = range(self.description["max_children"])
        for node in structure.order.tolist():
            row = [*structure.children[node].tolist(), *[-1 for _ in slots]]
            below = [
                [np.zeros(one.shape[1:]) if row[slot] < 0 else one[row[slot]] for slot in slots]
                for one in found
            ]
            given = None if x is None else x[node] if x.dtype.kind == "i" else x[node].astype(np.float64)
            for one, value in zip(found, self.apply(weights, given, *below), strict=True):
                one[node] = value
        return found

    def draw(self, structure: Structure, seed: int = 0) -> Array:
        rng = np.random.default_rng(seed)
        if self.description["x"]["dtype"] == "int32":
            return rng.integers(0, NUM_IDS, structure.num_nodes).astype(np.int32)
        return rng.standard_normal((structure.num_nodes, *self.description["x"]["shape"]), np.float32)


def read(value: str, *shape: Any) -> dict[str, Any]:
    return {"value": value, "shape": list(shape)}


def _step(
    kernel: str, results: Mapping[str, Sequence[Any]], variables: Mapping[str, str], **arguments: Any
) -> Any:
    return {
        "kernel": kernel,
        "arguments": {name: read(*one) for name, one in arguments.items()},
        "results": [read(name, *shape) for name, shape in results.items()],
        "variables": dict(variables),
    }


def _described(
    name: str, children: int, states: int, weights: Mapping[str, Array], **fields: Any
) -> dict[str, Any]:
    return {
        "format": "dietcode-recursion/1",
        "name": name,
        "max_children": children,
        "x": {"dtype": "float32", "shape": [H]},
        "states": [{"dtype": "float32", "shape": [H]}] * states,
        "max_nodes": MAX_NODES,
        "max_level": MAX_LEVEL,
        "single_output": states == 1,
        "weights": {name: {"dtype": "float32", "shape": list(one.shape)} for name, one in weights.items()},
        "load": [],
        "values": {},
        "before": [],
        "leaf": [],
    } | fields


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _random(**shapes: tuple[int, ...]) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {name: 0.3 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@functools.cache
def tree_lstm() -> Hand:
    """Two states, two children, a form of its own for leaves; inputs are gathered by the kernels."""
    weights = _random(W=(4, H, H), U=(4, H, H), b=(4, H), W3=(3, H, H), b3=(3, H))
    weights["W3"], weights["b3"] = weights["W"][:3].copy(), weights["b"][:3].copy()
    both = {"next0": ("B", H), "next1": ("B", H)}
    leaf = _step("leaf", both, {"M": "B", "A": "N"}, X=("x", "N", H), order=("order", "B"),
                 W=("W3", 3, H, H), b=("b3", 3, H))  # fmt: skip
    cell = _step("cell", both, {"M": "B", "A": "N", "T": "T"}, X=("x", "N", H), order=("order", "B"),
                 H=("state0", "T", H), C=("state1", "T", H), left=("child0", "B"), right=("child1", "B"),
                 W=("W", 4, H, H), U=("U", 4, H, H), b=("b", 4, H))  # fmt: skip

    def apply(w: Mapping[str, Array], x: Array, hs: list[Array], cs: list[Array]) -> Sequence[Array]:
        i, o, j, f = np.einsum("k,gnk->gn", x, w["W"]) + np.einsum("u,gnu->gn", sum(hs), w["U"]) + w["b"]
        c = _sigmoid(i) * np.tanh(j) + _sigmoid(f) * sum(cs)
        return _sigmoid(o) * np.tanh(c), c

    return Hand(
        _described("lstm", 2, 2, weights, leaf=[leaf], cell=[cell]),
        {
            "leaf": _spec("leaf", _LEAF, ["h", "c"], MAX_NODES, 3),
            "cell": _spec("cell", _LSTM, ["h", "c"], MAX_LEVEL, 4),
        },
        weights,
        apply,
    )


@functools.cache
def gated() -> Hand:
    """One state, a product of all inputs before the recursion, and leaves that the cell takes."""
    weights = _random(W=(2, H, H), V=(H, H))
    before = _step("rows", {"P": ("B", 2, H)}, {"M": "B", "A": "N"}, X=("x", "N", H), order=("order", "B"),
                   W=("W", 2, H, H))  # fmt: skip
    cell = _step("cell", {"next0": ("B", H)}, {"M": "B", "T": "T"}, P=("P", "B", 2, H), V=("V", H, H),
                 H=("state0", "T", H), left=("child0", "B"), right=("child1", "B"))  # fmt: skip

    def apply(w: Mapping[str, Array], x: Array, hs: list[Array]) -> Sequence[Array]:
        a, b = np.einsum("k,gnk->gn", x, w["W"])
        return (np.tanh(sum(hs) @ w["V"].T + a) * b,)

    values = {"P": {"dtype": "float32", "shape": ["N", 2 * H]}}
    return Hand(
        _described("gated", 2, 1, weights, values=values, before=[before], cell=[cell]),
        {
            "rows": _spec("rows", _HOISTED, ["P1"], MAX_NODES, 2),
            "cell": _spec("cell", _GATED, ["h"], MAX_LEVEL, 2),
        },
        weights,
        apply,
    )


@functools.cache
def own_leaves() -> Hand:
    """The same with a form of its own for leaves, which reads nothing of the large product."""
    hand = gated()
    leaf = _step("leaf", {"next0": ("B", H)}, {"M": "B", "A": "N"}, X=("x", "N", H), order=("order", "B"),
                 W=("W", 2, H, H))  # fmt: skip
    graph = {
        **_HOISTED,
        "pa": {"slice": "P1", "axis": "g", "at": 0},
        "pb": {"slice": "P1", "axis": "g", "at": 1},
        "y": {"tanh": "pa"},
        "h": {"mul": ["y", "pb"]},
    }
    specs = hand.specs | {"leaf": _spec("leaf", graph, ["h"], MAX_NODES, 2)}
    return Hand(hand.description | {"leaf": [leaf]}, specs, hand.weights, hand.apply)


@functools.cache
def chain() -> Hand:
    """A sequence of ids."""
    weights = _random(E=(NUM_IDS, H), V=(H, H))
    cell = _step("cell", {"next0": ("B", H)}, {"M": "B", "T": "T"}, E=("E", NUM_IDS, H), ids=("ids", "B"),
                 H=("state0", "T", H), left=("child0", "B"), V=("V", H, H))  # fmt: skip

    def apply(w: Mapping[str, Array], x: int, hs: list[Array]) -> Sequence[Array]:
        return (np.tanh(hs[0] @ w["V"].T + w["E"][x]),)

    x = {"dtype": "int32", "shape": []}
    return Hand(
        _described("chain", 1, 1, weights, x=x, cell=[cell]),
        {"cell": _spec("cell", _CHAIN, ["h"], MAX_LEVEL)},
        weights,
        apply,
    )


@functools.cache
def words() -> Hand:
    """Leaves are words; the first level looks up what it would multiply, and reads no states."""
    weights = _random(E=(NUM_IDS, H), V=(H, H))
    leaves = np.concatenate([np.tanh(weights["E"]), np.zeros((1, H), np.float32)])
    weights["L"] = np.ascontiguousarray(leaves @ weights["V"].T)
    leaf = _step("leaf", {"next0": ("B", H)}, {"M": "B"}, E=("E", NUM_IDS, H), ids=("ids", "B"))
    first = _step("first", {"next0": ("B", H)}, {"M": "B"}, L=("L", NUM_IDS + 1, H), left=("leaf0", "B"),
                  right=("leaf1", "B"))  # fmt: skip
    cell = _step("cell", {"next0": ("B", H)}, {"M": "B", "T": "T"}, H=("state0", "T", H),
                 left=("child0", "B"), right=("child1", "B"), V=("V", H, H))  # fmt: skip

    def apply(w: Mapping[str, Array], x: int, hs: list[Array]) -> Sequence[Array]:
        # Only a leaf's children are zeros: no other node's states are, all at once.
        return (np.tanh(sum(hs) @ w["V"].T if np.any(hs) else w["E"][x]),)

    x = {"dtype": "int32", "shape": []}
    steps = {"leaf": [leaf], "first": [first], "cell": [cell], "leaf_rows": NUM_IDS}
    return Hand(
        _described("words", 2, 1, weights, x=x, **steps),
        {
            "leaf": _spec("leaf", _WORD, ["h"], MAX_NODES),
            "first": _spec("first", _OF_WORDS, ["h"], MAX_LEVEL),
            "cell": _spec("cell", _JOINED, ["h"], MAX_LEVEL),
        },
        weights,
        apply,
    )


def write_recursion(folder: Path, hand: Hand, **changes: Any) -> Path:
    """Write the bundle of a recursion.

    Parameters
    ----------
    **changes
        Whole fields of the description to replace.
    """
    digests = {name: f"{number:02x}" for number, name in enumerate(hand.specs)}
    description = copy.deepcopy(hand.description) | changes
    for step in (step for phase in PHASES for step in description.get(phase, [])):
        step["kernel"] = digests.get(step["kernel"], step["kernel"])
    files = {
        "recursion.json": pretty_json(description),
        REPORT: pretty_json({"parts": []}),
        WEIGHTS: save(hand.weights),
    }
    libraries = {}
    for name, digest in digests.items():
        source = built_of(hand.specs[name])
        shutil.copytree(source, folder / "libraries" / digest)
        libraries[digest] = {"manifest": file_facts((source / MANIFEST).read_bytes())["sha256"]}
    manifest = {
        "format": "dietcode-recursion/1",
        "name": hand.description["name"],
        "files": {name: file_facts(data) for name, data in files.items()},
        "libraries": libraries,
    }
    for name, data in {**files, MANIFEST: pretty_json(manifest)}.items():
        (folder / name).write_bytes(data)
    return folder


@functools.cache
def bundle(make: Callable[[], Hand]) -> Path:
    """The bundle of a recursion; do not change what is in it."""
    folder = Path(tempfile.mkdtemp(prefix="dietcode-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_recursion(folder / "recursion", make())


def random_forest(num_nodes: int, seed: int, columns: int = 2, shared: float = 0.0) -> Structure:
    """Random trees, their nodes in any order, some slots empty; with `shared`, nodes of several parents."""
    rng = np.random.default_rng(seed)
    children = np.full((num_nodes, columns), -1, np.int32)
    free: list[int] = []
    for node in range(num_nodes):
        for slot in range(columns):
            if free and rng.random() < 0.45:
                children[node, slot] = free.pop(int(rng.integers(len(free))))
            elif node and rng.random() < shared:
                children[node, slot] = rng.integers(node)
        free.append(node)
    order = rng.permutation(num_nodes)
    renumbered = np.empty_like(children)
    renumbered[order] = np.where(children < 0, -1, order[children])
    return Structure(renumbered)
