"""The rows of the table of blocks: an example or a variant of one, what it is held against, and the bar."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SPECS = Path(__file__).resolve().parent / "block_specs"
_FLOAT, _INT = "float32", "int32"


@dataclass(frozen=True)
class Bar:
    """What is asked of a row.

    Attributes
    ----------
    mean, worst : float
        Least ratio to the other path: geometric mean of the instances, and the worst of them.
    copy : float or None
        Least share of a copy's bandwidth at instances whose bytes exceed L2.
    """

    mean: float
    worst: float
    copy: float | None = None


@dataclass(frozen=True)
class TableRow:
    """One row.

    Attributes
    ----------
    example : str
        Of ``examples``, or of ``benchmarks/block_specs``.
    bar : Bar or None
        None where none is asked.
    changes : dict
        Fields of the example that are others here; a mapping is merged, None takes a field away.
    graph : dict or None
        In the place of the example's graph of nodes.
    cell : bool
        It is a cell that PyTorch has as a module.
    bags : bool
        It adds up rows of a table, which PyTorch has as a function.
    beside : str or None
        The row whose library it is held against; None for PyTorch.
    """

    example: str
    bar: Bar | None
    changes: Mapping[str, Any] = field(default_factory=dict)
    graph: Mapping[str, Any] | None = None
    cell: bool = False
    bags: bool = False
    beside: str | None = None

    def spec(self, name: str) -> dict[str, Any]:
        """Return the spec as data."""
        own = SPECS / f"{self.example}.yaml"
        path = own if own.is_file() else EXAMPLES / own.name
        data: dict[str, Any] = yaml.safe_load(path.read_text())
        data = _merged(data, {"name": name} | dict(self.changes))
        if self.graph is not None:
            data["op"]["block"]["graph"] = copy.deepcopy(dict(self.graph))
        return data


def _merged(data: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in changes.items():
        if value is None:
            merged.pop(key)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), dict) and key != "shape_vars":
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


def _range(high: int) -> dict[str, int]:
    return {"min": 1, "max": high}


def _channels(number: int) -> dict[str, Any]:
    return {"op": {"conv2d": {"groups": number}}, "dims": {"c": number, "o": number}}


_HIDDEN = {"dims": {"n": 512, "k": 512, "u": 512}}
_ROWS_BAR, _PRODUCTS_BAR, _CELLS_BAR = Bar(1.1, 0.95, copy=0.8), Bar(1.2, 1.0), Bar(1.5, 1.1)
_ATTENTION_BAR, _DEPTHWISE_BAR = Bar(1.3, 1.0), Bar(1.0, 0.9)
_TABLE = {"dims": "tk", "dtype": _FLOAT}
_POSITIONS = {"dims": "m", "dtype": _INT}
_PRODUCT = {"op": {"block": {"outputs": ["Y"]}}, "shape_vars": {"M": _range(256)}}

ROWS: dict[str, TableRow] = {
    "softmax": TableRow("softmax", _ROWS_BAR),
    "layernorm": TableRow("layernorm", _ROWS_BAR),
    "rmsnorm": TableRow(
        "layernorm",
        _ROWS_BAR,
        {"tensors": {"beta": None}},
        {"Y": {"rmsnorm": ["X", "gamma"], "axis": "n", "eps": 1.0e-6}},
    ),
    "add-layernorm": TableRow(
        "layernorm",
        _ROWS_BAR,
        {"tensors": {"R": {"dims": "mn", "dtype": _FLOAT}}},
        {
            "S": {"add": ["X", "R"]},
            "Y": {"layernorm": ["S", "gamma", "beta"], "axis": "n", "eps": 1.0e-5},
        },
    ),
    "swiglu": TableRow("swiglu", _PRODUCTS_BAR),
    "qkv": TableRow("qkv", _PRODUCTS_BAR),
    "dense-add-layernorm": TableRow("dense-add-layernorm", _PRODUCTS_BAR),
    "lstm-cell-256": TableRow("lstm-cell", _CELLS_BAR, cell=True),
    "lstm-cell-512": TableRow("lstm-cell", _CELLS_BAR, _HIDDEN, cell=True),
    "gru-cell-256": TableRow("gru-cell", _CELLS_BAR, cell=True),
    "gru-cell-512": TableRow("gru-cell", _CELLS_BAR, _HIDDEN, cell=True),
    "treelstm-cell": TableRow("treelstm-cell", None),
    "attention": TableRow("attention", _ATTENTION_BAR),
    "attention-decode": TableRow(
        "attention",
        _ATTENTION_BAR,
        {"shape_vars": {"B": _range(8), "C": _range(2048)}, "dims": {"q": 1, "k": "C"}},
    ),
    "depthwise-32": TableRow("depthwise", _DEPTHWISE_BAR, _channels(32)),
    "depthwise-64": TableRow("depthwise", _DEPTHWISE_BAR, _channels(64)),
    "depthwise-128": TableRow("depthwise", _DEPTHWISE_BAR, _channels(128)),
    "depthwise-256": TableRow("depthwise", _DEPTHWISE_BAR),
    "depthwise-512": TableRow("depthwise", _DEPTHWISE_BAR, _channels(512)),
    "dense-contiguous": TableRow(
        "dense-add-layernorm",
        None,
        _PRODUCT | {"tensors": {"b": None, "R": None, "gamma": None, "beta": None}},
        {"Y": {"einsum": ["X", "W"], "dims": "mn"}},
    ),
    "dense-gathered": TableRow(
        "dense-add-layernorm",
        Bar(0.95, 0.95),
        _PRODUCT
        | {
            "tensors": dict.fromkeys(("b", "R", "gamma", "beta")) | {"X": _TABLE, "at": _POSITIONS},
            "dims": {"t": 1024},
        },
        {"G": {"gather": ["X", "at"]}, "Y": {"einsum": ["G", "W"], "dims": "mn"}},
        beside="dense-contiguous",
    ),
    "layernorm-gathered": TableRow(
        "layernorm",
        Bar(0.95, 0.95),
        {"tensors": {"X": {"dims": "tn"}, "at": _POSITIONS}, "dims": {"t": 4096}},
        {
            "G": {"gather": ["X", "at"]},
            "Y": {"layernorm": ["G", "gamma", "beta"], "axis": "n", "eps": 1.0e-5},
        },
        beside="layernorm",
    ),
}

# Operators that no example has, and odd sizes; each is a spec of its own.
_OWN: dict[str, Bar] = (
    dict.fromkeys(
        (
            *("pool-nhwc", "pool-nchw", "transpose-matrix", "transpose-images", "transpose-heads"),
            *("softmax-lengths", "layernorm-channels", "bags"),
            *("layernorm-101", "softmax-333", "add-rmsnorm-769", "loss-1531", "geglu-769"),
            *("rope-40", "rope-72", "rope-normed-80", "group-norm", "embedding-333"),
        ),
        Bar(1.1, 0.95),
    )
    | dict.fromkeys(("swiglu-333", "qkv-101", "dense-softmax-333", "dense-add-rmsnorm-769"), _PRODUCTS_BAR)
    | {"gru-cell-257": _CELLS_BAR}
    | dict.fromkeys(("attention-40", "attention-72", "attention-decode-40"), _ATTENTION_BAR)
    | dict.fromkeys(("depthwise-37", "depthwise-causal-333", "conv1d-101"), _DEPTHWISE_BAR)
)
ROWS |= {name: TableRow(name, bar, cell="-cell-" in name, bags=name == "bags") for name, bar in _OWN.items()}
