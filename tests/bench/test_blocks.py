"""What `bench` compares a block with computes the same, in NumPy and in PyTorch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import block_data, built_of

from dietcode.bench.compare import bench
from dietcode.bench.operator import Operator
from dietcode.bench.vendor import vendor_paths
from dietcode.runtime.library import Library
from dietcode.search_space.rows.reference import block_reference
from dietcode.workload.operators import OPERATORS
from dietcode.workload.parse import spec_from_data
from dietcode.workload.pooling import PoolAxis


def operator_of(word: str, num_operands: int, **options: Any) -> Operator:
    """One operator on X [m, n], on B [m, n] or [n], and on C."""
    operator = OPERATORS[word]
    along = "n" if word in {"layernorm", "rmsnorm"} else "mn"
    names = ["X", "B", "C"][:num_operands]
    node = {word: names, **({"axis": "n"} if "axis" in operator.attributes else {}), **options}
    tensors = {name: {"dims": "mn" if name == "X" else along, "dtype": "float32"} for name in names}
    return Operator.of_spec(spec_from_data(block_data("case", {"Y": node}, ["Y"], tensors=tensors)))


OF_TENSORS = {"einsum", "gather", "relabel", "slice", "maxpool", "avgpool", "rotate", "hide", "transpose"}
POINTWISE = {word: operator for word, operator in OPERATORS.items() if word not in OF_TENSORS}
CASES = [
    *((word, len(op.operands), {"high": 0.5} if word == "clip" else {}) for word, op in POINTWISE.items()),
    ("layernorm", 1, {}),
    ("rmsnorm", 1, {"eps": 0.1}),
    ("softmax", 1, {"scale": 0.5, "causal": "m"}),
    ("gelu", 1, {"form": "tanh"}),
    ("clip", 1, {"low": -0.5, "high": 0.25}),
]


@pytest.mark.parametrize("vendor", ["numpy", "torch"])
@pytest.mark.parametrize(("word", "num_operands", "options"), CASES)
def test_every_operator(vendor: str, word: str, num_operands: int, options: dict[str, Any]) -> None:
    if vendor == "torch":
        pytest.importorskip("torch", reason=of_extra("bench"))
    operator = operator_of(word, num_operands, **options)
    rng = np.random.default_rng(0)
    shapes = operator.shapes({"M": 5})
    arrays = {name: rng.standard_normal(shapes[name], dtype=np.float32) for name in operator.inputs}
    if word in {"log", "sqrt", "rsqrt"}:
        arrays["X"] = np.abs(arrays["X"])
    right = block_reference(operator.problem, arrays)["Y"]
    paths = vendor_paths(vendor, operator, 1)
    eager = next(bind for name, bind in paths.items() if "compile" not in name)
    result = np.asarray(eager(arrays)())
    assert result.dtype == np.float32 and result.shape == right.shape
    assert np.abs(result - right).max() <= 1e-5 * np.abs(right).max()


# Graph, and the indices of each tensor; lengths are int32.
ACROSS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "lengths": ({"Y": {"hide": ["X", "long"], "axis": "n"}}, {"X": "mn", "long": "m"}),
    "largest token": (
        {"H": {"hide": ["X", "long"], "axis": "n"}, "Y": {"max": "H", "axis": "n"}},
        {"X": "mnk", "long": "m"},
    ),
    "mean": ({"Y": {"mean": "X", "axis": "nk"}}, {"X": "mnkl"}),
    "softmax": ({"Y": {"softmax": "X", "axis": "nk", "scale": 0.5}}, {"X": "mnkl"}),
    "norm": ({"Y": {"layernorm": ["X", "g", "b"], "axis": "n"}}, {"X": "mnk", "g": "n", "b": "n"}),
    "root": ({"Y": {"rmsnorm": ["X", "g"], "axis": "n"}}, {"X": "mnk", "g": "nk"}),
    "transposed": (
        {"T": {"transpose": "X", "dims": "knm"}, "Y": {"add": ["T", "b"]}},
        {"X": "mnk", "b": "m"},
    ),
}


@pytest.mark.parametrize("vendor", ["numpy", "torch"])
@pytest.mark.parametrize("name", ACROSS)
def test_columns_before_other_indices(vendor: str, name: str) -> None:
    if vendor == "torch":
        pytest.importorskip("torch", reason=of_extra("bench"))
    graph, indices = ACROSS[name]
    data = block_data("case", graph, ["Y"])
    data["tensors"] = {
        tensor: {"dims": own, "dtype": "int32" if tensor == "long" else "float32"}
        for tensor, own in indices.items()
    }
    data["dims"] = {"m": "M"} | {
        k: number for k, number in {"n": 7, "k": 5, "l": 3}.items() if k in indices["X"]
    }
    operator = Operator.of_spec(spec_from_data(data))
    rng, extents = np.random.default_rng(0), operator.extents({"M": 5})
    arrays = {tensor: operator.problem.draw(tensor, extents, rng) for tensor in operator.inputs}
    if "long" in arrays:
        arrays["long"][:] = [1, 7, 9, 2, 3]
    right = block_reference(operator.problem, arrays)["Y"]
    eager = next(bind for path, bind in vendor_paths(vendor, operator, 1).items() if "compile" not in path)
    assert np.allclose(np.asarray(eager(arrays)()), right, rtol=1e-5, atol=1e-5)


FROM_MEMORY = {
    "even": {"maxpool": "X", "dims": "npqc", "window": 3, "strides": 2, "padding": 1},
    "uneven": {"maxpool": "X", "dims": "npqc", "window": [3, 2], "padding": [0, 2, 1, 1]},
    "line": {"maxpool": "X", "dims": "nhqc", "window": 2},
    "mean": {"avgpool": "X", "dims": "npqc", "window": 3, "padding": 1},
    "mean inside": {"avgpool": "X", "dims": "npqc", "window": 2, "padding": 1, "count_include_pad": False},
    "uneven mean": {"avgpool": "X", "dims": "npqc", "window": 2, "padding": [1, 0, 0, 1]},
    "uneven inside": {
        "avgpool": "X",
        "dims": "npqc",
        "window": 2,
        "padding": [1, 0, 0, 1],
        "count_include_pad": False,
    },
    "rotated": {"rotate": "X", "axis": "c", "by": 2},
    "negated": {"rotate": "X", "axis": "c", "by": 3, "negate": True},
    "pairs": {"rotate": "X", "axis": "c", "by": 1, "negate": True, "within": 2},
    "fours": {"rotate": "X", "axis": "c", "by": 3, "within": 4},
}


@pytest.mark.parametrize("vendor", ["numpy", "torch"])
@pytest.mark.parametrize("name", FROM_MEMORY)
def test_windows_and_rotations(vendor: str, name: str) -> None:
    """Against windows and columns that are written out here."""
    if vendor == "torch":
        pytest.importorskip("torch", reason=of_extra("bench"))
    node, tensors = FROM_MEMORY[name], {"X": {"dims": "nhwc", "dtype": "float32"}}
    channels = 8 if "within" in node else 5
    dims = {"n": "M", "h": 6, "w": 7, "c": channels}
    operator = Operator.of_spec(
        spec_from_data(block_data("case", {"Y": node}, ["Y"], tensors=tensors, dims=dims))
    )
    x = np.random.default_rng(0).standard_normal((2, 6, 7, channels), dtype=np.float32)
    right = rotated(x, node) if "rotate" in node else pooled(x, operator, node)
    paths = vendor_paths(vendor, operator, 1)
    eager = next(bind for path, bind in paths.items() if "compile" not in path)
    result = np.asarray(eager({"X": x})())
    assert result.shape == right.shape and np.abs(result - right).max() <= 1e-6


def rotated(x: Any, node: Any) -> Any:
    size, by = x.shape[-1], node["by"]
    within = node.get("within", size)
    columns = [c // within * within + (c - by) % within for c in range(size)]
    signs = np.array([-1 if node.get("negate") and c % within < by else 1 for c in range(size)])
    return x[..., columns] * signs


def pooled(x: Any, operator: Operator, node: Any) -> Any:
    axes = {one.axis: one for one in operator.problem.pools["Y"]}
    high, wide = (axes.get(axis, PoolAxis(axis, axis, 1, 1, 0, 0)) for axis in "hw")
    rows, columns = (
        [
            range(p * one.stride - one.padding, p * one.stride - one.padding + one.window)
            for p in range((size + one.padding + one.padding_after - one.window) // one.stride + 1)
        ]
        for one, size in ((high, 6), (wide, 7))
    )
    right = np.empty((2, len(rows), len(columns), 5))
    for p, q in np.ndindex(right.shape[1:3]):
        seen = [x[:, i, j] for i in rows[p] for j in columns[q] if 0 <= i < 6 and 0 <= j < 7]
        count = high.window * wide.window if node.get("count_include_pad", True) else len(seen)
        right[:, p, q] = np.max(seen, axis=0) if "maxpool" in node else np.sum(seen, axis=0) / count
    return right


PRODUCTS = {
    "linear": ({"P": {"einsum": ["X", "W"], "dims": "mn"}, "Y": {"relu": "P"}}, "mk", "nk"),
    "transposed": ({"P": {"einsum": ["X", "W"], "dims": "mn"}, "Y": {"relu": "P"}}, "km", "kn"),
    "gates": (
        {
            "P": {"einsum": ["X", "W"], "dims": "mgn"},
            "a": {"slice": "P", "axis": "g", "at": 0},
            "b": {"slice": "P", "axis": "g", "at": 2},
            "R": {"relabel": "X", "dims": "mn"},
            "c": {"mul": ["a", "b"]},
            "Y": {"add": ["c", "R"]},
        },
        "mk",
        "gnk",
    ),
}


@pytest.mark.parametrize("vendor", ["numpy", "torch"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(vendor: str, name: str) -> None:
    if vendor == "torch":
        pytest.importorskip("torch", reason=of_extra("bench"))
    graph, x, w = PRODUCTS[name]
    tensors = {key: {"dims": dims, "dtype": "float32"} for key, dims in (("X", x), ("W", w))}
    dims = {"m": "M", "n": 24, "k": 24, "g": 3}
    data = block_data("case", graph, ["Y"], tensors=tensors, dims={k: dims[k] for k in {*x, *w}})
    operator = Operator.of_spec(spec_from_data(data))
    rng, shapes = np.random.default_rng(0), operator.shapes({"M": 5})
    arrays = {name: rng.standard_normal(shapes[name], dtype=np.float32) for name in operator.inputs}
    right = block_reference(operator.problem, arrays)["Y"]
    for path, bind in vendor_paths(vendor, operator, 1).items():
        if "compile" not in path:
            result = np.asarray(bind(arrays)())
            assert result.shape == right.shape
            assert np.abs(result - right).max() <= 1e-5 * np.abs(right).max()


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("vendor", ["numpy", "torch"])
def test_a_library_that_writes_to_a_table(vendor: str) -> None:
    if vendor == "torch":
        pytest.importorskip("torch", reason=of_extra("bench"))
    data = block_data(
        "rows",
        {"Y": {"softmax": "X", "axis": "n"}},
        [{"Y": {"into": "T", "at": "at"}}],
        tensors={
            "X": {"dims": "mn", "dtype": "float32"},
            "T": {"dims": "tn", "dtype": "float32"},
            "at": {"dims": "m", "dtype": "int32"},
        },
        dims={"m": "M", "n": 20, "t": 64},
    )
    (record, *_) = bench(built_of(json.dumps(data)), [vendor], num_instances=1, rounds=1)
    assert record["max_rel_error"] < 1e-5 and record["vendor"].startswith(vendor)


@pytest.mark.thorough
def test_positions_are_tensors_beside_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays and tensors in one call take a slower way: the library looked 15 µs slower than it is."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    data = block_data(
        "looked-up",
        {"G": {"gather": ["T", "at"]}, "Y": {"softmax": "G", "axis": "n"}},
        ["Y"],
        tensors={"T": {"dims": "tn", "dtype": "float32"}, "at": {"dims": "m", "dtype": "int32"}},
        dims={"m": "M", "n": 20, "t": 64},
    )
    given: list[Any] = []

    def call(self: Library, *arguments: Any, **keywords: Any) -> Any:
        given.extend([*arguments, *keywords.values()])
        return own(self, *arguments, **keywords)

    own = Library.__call__
    monkeypatch.setattr(Library, "__call__", call)
    (record, *_) = bench(built_of(json.dumps(data)), ["torch"], num_instances=1, rounds=1)
    assert record["vendor"].startswith("torch")
    assert given and all(isinstance(value, torch.Tensor) for value in given)


@pytest.mark.thorough
def test_a_library_with_two_outputs_beside_numpy() -> None:
    data = block_data(
        "two",
        {"S": {"add": ["X", "g"]}, "Y": {"softmax": "S", "axis": "n"}},
        ["S", "Y"],
        tensors={
            "X": {"dims": "mn", "dtype": "float32"},
            "g": {"dims": "n", "dtype": "float32", "constant": True},
        },
    )
    (record, *_) = bench(built_of(json.dumps(data)), ["numpy"], num_instances=2, rounds=1)
    assert record["max_rel_error"] < 1e-5 and record["vendor"] == "numpy"
    assert record["measured_gb_per_sec"] > 0
