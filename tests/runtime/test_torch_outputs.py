"""``lib.torch_op`` of blocks: several outputs, and rows that are written to a table of the caller's."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import block_data, built_of

import dietcode
from dietcode.errors import TensorError

torch = pytest.importorskip("torch", reason=of_extra("bench"))


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """PyTorch compiles a function of a process eight times at most, for all tests together."""
    torch._dynamo.reset()


SEVERAL = json.dumps(
    block_data(
        "several",
        {
            "S": {"add": ["X", "R"]},
            "m": {"mean": "S", "axis": "n"},
            "Y": {"rmsnorm": ["S", "gamma"], "axis": "n"},
        },
        ["Y", "m", "S"],
        tensors={
            "X": {"dims": "mn", "dtype": "float32"},
            "R": {"dims": "mn", "dtype": "float32"},
            "gamma": {"dims": "n", "dtype": "float32"},
        },
    )
)
_H = {"H": {"dims": "tn", "dtype": "float32"}, "to": {"dims": "m", "dtype": "int32"}}
_X = {"X": {"dims": "mn", "dtype": "float32"}}


def table_data(name: str, outputs: list[Any]) -> str:
    """The mean of rows, and their doubles in a table of nine rows."""
    graph = {"h": {"add": ["X", "X"]}, "m": {"mean": "h", "axis": "n"}}
    used = {key: node for key, node in graph.items() if key == "h" or len(outputs) > 1}
    dims = {"m": "M", "n": 40, "t": 9}
    return json.dumps(block_data(name, used, outputs, tensors={**_H, **_X}, dims=dims))


BOTH = table_data("both", ["m", {"h": {"into": "H", "at": "to"}}])
ALONE = table_data("alone", [{"h": {"into": "H", "at": "to"}}])


@pytest.fixture
def rows() -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(0)
    x, r = (torch.randn(6, 40, generator=generator) for _ in range(2))
    return x, r, torch.rand(40, generator=generator)


def right(x: Any, r: Any, gamma: Any) -> tuple[Any, Any, Any]:
    s = x + r
    return s * torch.rsqrt((s * s).mean(-1, keepdim=True) + 1e-6) * gamma, s.mean(-1), s


def all_close(results: Any, wanted: Any) -> bool:
    assert type(results) is tuple
    pairs = zip(results, wanted, strict=True)
    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-5) for one, other in pairs)


def test_several_outputs(rows: tuple[Any, Any, Any]) -> None:
    x, r, gamma = rows
    library: Any = dietcode.load(built_of(SEVERAL))
    op = library.torch_op(gamma=gamma)
    wanted = right(x, r, gamma)
    for _ in range(2):
        assert all_close(op(x, r), wanted) and all_close(op.forward(X=x, R=r), wanted)
    assert all_close(copy.deepcopy(op)(x, r), wanted)
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend="aot_eager")
    num_rows = torch.export.Dim("num_rows", min=2, max=30)
    exported = torch.export.export(op, (x, r), dynamic_shapes=(({0: num_rows}, {0: num_rows}),))
    with torch.no_grad():
        for few in (6, 1, 3):
            assert all_close(compiled(x[:few], r[:few]), right(x[:few], r[:few], gamma))
        assert all_close(exported.module()(x[:4], r[:4]), right(x[:4], r[:4], gamma))
    torch.library.opcheck(op._operator.overload, (x, r, gamma))
    with pytest.raises(TensorError, match="X: requires grad"):
        op(x.clone().requires_grad_(), r)


@pytest.mark.parametrize("text", [BOTH, ALONE], ids=["both", "alone"])
def test_rows_of_a_table(text: str, rows: tuple[Any, Any, Any]) -> None:
    x, to = rows[0], torch.tensor([8, 1, 0, 3, 5, 2], dtype=torch.int32)
    library: Any = dietcode.load(built_of(text))
    op = library.torch_op()
    wanted = torch.zeros(9, 40)
    wanted[to.long()] = 2 * x

    def check(call: Any) -> None:
        table = torch.zeros(9, 40)
        results = call(table, to, x)
        assert torch.equal(table, wanted)
        last = results if text is ALONE else results[1]
        assert last is table or last.data_ptr() == table.data_ptr()
        if text is BOTH:
            assert torch.allclose(results[0], 2 * x.mean(-1), atol=1e-5)

    check(op)
    check(op)
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        check(compiled)
        check(op.forward)
    torch.library.opcheck(op._operator.overload, (torch.zeros(9, 40), to, x))
    with pytest.raises(TensorError, match="H"):
        op(torch.zeros(40, 9).T, to, x)
    with pytest.raises(TensorError, match="H: requires grad"):
        op(torch.zeros(9, 40).requires_grad_(), to, x)


def test_a_table_that_is_written_is_known_to_have_changed(rows: tuple[Any, Any, Any]) -> None:
    x, to = rows[0], torch.arange(6, dtype=torch.int32)
    library: Any = dietcode.load(built_of(ALONE))
    op = library.torch_op()
    weight, table = torch.ones(9, 40, requires_grad=True), torch.zeros(9, 40)
    product = (weight * table).sum()
    with torch.no_grad():
        op._overload(table, to, x)
    assert np.array_equal(table[:6].numpy(), 2 * x.numpy())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
