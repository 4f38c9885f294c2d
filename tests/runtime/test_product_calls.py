"""Libraries of blocks with products: several packed constants, and PyTorch's cells as what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from needs import of_extra
from small_libraries import block_data, built_of

import dietcode
from dietcode.errors import ShapeError, TensorError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HIDDEN, READ = 40, 24


def small(name: str, **dims: int) -> str:
    """A library of an example over M = 1…30, with other extents."""
    data = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    data |= {"shape_vars": {"M": {"min": 1, "max": 30}}, "target": {"kind": "llvm"}}
    data["dims"] |= dims
    return str(built_of(json.dumps(data)))


@pytest.fixture(scope="module")
def lstm() -> Any:
    return dietcode.load(small("lstm-cell", n=HIDDEN, k=READ, u=HIDDEN))


@pytest.fixture(scope="module")
def gru() -> Any:
    return dietcode.load(small("gru-cell", n=HIDDEN, k=READ, u=HIDDEN))


def draw(rows: int, gates: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    shapes = {
        "X": (rows, READ),
        "H": (rows, HIDDEN),
        "C": (rows, HIDDEN),
        "W": (gates, HIDDEN, READ),
        "U": (gates, HIDDEN, HIDDEN),
        "b": (gates, HIDDEN),
        "d": (gates, HIDDEN),
    }
    return {name: 0.3 * rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def of(library: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a library, its constants packed."""
    packed = library.manifest["packed"]
    given = {name: arrays[name] for name in library.manifest["argument_order"]}
    return given | {name: library.pack(**{name: arrays[name]}) for name in packed}


@pytest.mark.parametrize("rows", [1, 15, 16, 30])
def test_lstm_cell_is_that_of_torch(lstm: Any, rows: int) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    arrays = draw(rows, 4)
    cell = torch.nn.LSTMCell(READ, HIDDEN)
    with torch.no_grad():
        for parameter, name in ((cell.weight_ih, "W"), (cell.weight_hh, "U"), (cell.bias_ih, "b")):
            parameter.copy_(torch.from_numpy(arrays[name]).reshape(parameter.shape))
        cell.bias_hh.zero_()
        x, h, c = (torch.from_numpy(arrays[name]) for name in "XHC")
        right = cell(x, (h, c))
    for result, wanted in zip(lstm(**of(lstm, arrays)), right, strict=True):
        assert np.allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 16, 30])
def test_gru_cell_is_that_of_torch(gru: Any, rows: int) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    arrays = draw(rows, 3)
    cell = torch.nn.GRUCell(READ, HIDDEN)
    names = {"weight_ih": "W", "weight_hh": "U", "bias_ih": "b", "bias_hh": "d"}
    with torch.no_grad():
        for parameter, name in names.items():
            own = getattr(cell, parameter)
            own.copy_(torch.from_numpy(arrays[name]).reshape(own.shape))
        right = cell(torch.from_numpy(arrays["X"]), torch.from_numpy(arrays["H"]))
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    assert torch.allclose(gru(**of(gru, tensors)), right, rtol=1e-5, atol=1e-5)
    operator = gru.torch_op(W=tensors["W"], U=tensors["U"], b=tensors["b"], d=tensors["d"])
    assert torch.allclose(operator(tensors["X"], tensors["H"]), right, rtol=1e-5, atol=1e-5)


def test_bound_and_repeated(gru: Any) -> None:
    arrays = draw(7, 3)
    plain = gru(**of(gru, arrays))
    call = gru.bind(**{name: arrays[name] for name in "WUbd"})
    out = np.full_like(plain, np.nan)
    for _ in range(3):
        call(arrays["X"], arrays["H"], out=out)
        assert np.array_equal(out, plain) and np.array_equal(gru(**of(gru, arrays)), plain)


def test_constants_are_not_taken_for_each_other(gru: Any) -> None:
    arrays = draw(5, 3)
    given = of(gru, arrays)
    with pytest.raises(TensorError, match="W: packed as U"):
        gru(**given | {"W": given["U"]})
    with pytest.raises(TensorError, match=r"pass what lib.pack\(W=…\) returned"):
        gru(**given | {"W": arrays["W"]})
    with pytest.raises(ShapeError, match="W: extent 40 of axis 2; allowed: 24"):
        gru.pack(W=arrays["U"])


def test_a_constant_may_be_named_as_another_s_panels() -> None:
    graph = {
        "P": {"einsum": ["X", "W"], "dims": "mn"},
        "Q": {"einsum": ["X", "W_panels"], "dims": "mn"},
        "Y": {"add": ["P", "Q"]},
    }
    weight = {"dims": "nk", "dtype": "float32", "constant": True}
    tensors = {"X": {"dims": "mk", "dtype": "float32"}, "W": weight, "W_panels": weight}
    data = block_data("panels", graph, ["Y"], tensors=tensors, dims={"m": "M", "n": 20, "k": 8})
    library = dietcode.load(built_of(json.dumps(data)))
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal((rows, 8), dtype=np.float32) for rows in (5, 20, 20))
    given = of(library, {"X": x, "W": w, "W_panels": v})
    assert np.allclose(library(**given), x @ (w + v).T, atol=1e-5)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_tree_lstm_cell_gathers_its_children(kind: str) -> None:
    library = dietcode.load(small("treelstm-cell", n=HIDDEN, k=READ, u=HIDDEN, t=50))
    rng, rows = np.random.default_rng(0), 9
    shapes = {
        "X": (rows, READ),
        "H": (50, HIDDEN),
        "C": (50, HIDDEN),
        "W": (4, HIDDEN, READ),
        "U": (3, HIDDEN, HIDDEN),
        "V": (HIDDEN, HIDDEN),
        "b": (4, HIDDEN),
    }
    arrays: dict[str, Any] = {n: 0.3 * rng.standard_normal(s, dtype=np.float32) for n, s in shapes.items()}
    arrays |= {name: rng.integers(0, 50, rows, dtype=np.int32) for name in ("left", "right")}
    wide = {name: value.astype(np.float64) for name, value in arrays.items() if value.dtype == np.float32}
    x = np.einsum("mk,gnk->gmn", wide["X"], wide["W"]) + wide["b"][:, None]
    left, right = (wide["H"][arrays[side]] for side in ("left", "right"))
    i, o, j = x[:3] + np.einsum("mu,gnu->gmn", left + right, wide["U"])
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    c = sigmoid(i) * np.tanh(j)
    for side, state in (("left", left), ("right", right)):
        c = c + sigmoid(x[3] + state @ wide["V"].T) * wide["C"][arrays[side]]
    h = sigmoid(o) * np.tanh(c)
    if kind == "torch":
        torch = pytest.importorskip("torch", reason=of_extra("bench"))
        arrays = {name: torch.from_numpy(value) for name, value in arrays.items()}
    for result, wanted in zip(library(**of(library, arrays)), (h, c), strict=True):
        assert np.allclose(np.asarray(result), wanted, rtol=1e-5, atol=1e-5)
    wrong = arrays | {"left": np.zeros(rows, np.int64)}
    with pytest.raises(TensorError, match="left: dtype int64; allowed: int32"):
        library(**of(library, wrong))


TREE = block_data(
    "tree",
    {
        "A": {"gather": ["H", "left"]},
        "B": {"gather": ["H", "right"]},
        "P": {"einsum": ["A", "W"], "dims": "mn"},
        "Q": {"einsum": ["B", "V"], "dims": "mn"},
        "S": {"add": ["P", "Q"]},
        "h": {"tanh": "S"},
    },
    [{"h": {"into": "H", "at": "to"}}],
    tensors={
        "H": {"dims": "tk", "dtype": "float32"},
        "left": {"dims": "m", "dtype": "int32"},
        "right": {"dims": "m", "dtype": "int32"},
        "to": {"dims": "m", "dtype": "int32"},
        "W": {"dims": "nk", "dtype": "float32", "constant": True},
        "V": {"dims": "nk", "dtype": "float32", "constant": True},
    },
    dims={"m": "M", "n": HIDDEN, "k": HIDDEN, "t": 63},
)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_recursion_over_a_tree_stays_in_one_table(kind: str) -> None:
    """Leaves 31…62 of a full tree; each level reads the rows of the one below and writes its own."""
    rng = np.random.default_rng(0)
    arrays = {name: 0.2 * rng.standard_normal((HIDDEN, HIDDEN), dtype=np.float32) for name in "WV"}
    table = np.zeros((63, HIDDEN), np.float32)
    table[31:] = rng.standard_normal((32, HIDDEN), dtype=np.float32)
    right = table.astype(np.float64)
    for node in reversed(range(31)):
        children = right[2 * node + 1] @ arrays["W"].T + right[2 * node + 2] @ arrays["V"].T
        right[node] = np.tanh(children)
    convert: Any = np.asarray
    if kind == "torch":
        convert = pytest.importorskip("torch", reason=of_extra("bench")).from_numpy
    step = dietcode.load(built_of(json.dumps(TREE))).bind(**{k: convert(v) for k, v in arrays.items()})
    states = convert(table)
    for level in (range(15, 31), range(7, 15), range(3, 7), range(1, 3), range(1)):
        nodes = np.array(level, np.int32)
        positions = (convert(2 * nodes + 1), convert(2 * nodes + 2), convert(nodes))
        assert step(states, *positions) is states
    assert np.allclose(states, right, atol=1e-5)
