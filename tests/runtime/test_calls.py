"""Calls of a loaded library: right for every shape, for every kind of tensor, at any alignment."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from dlpack_tensors import DlpackOnly
from needs import of_extra
from small_libraries import (
    SAFE_ERROR,
    SPECS,
    built,
    built_of,
    draw,
    error,
    expected,
    packed_arguments,
    spec_data,
)

import dietcode
from dietcode.errors import ShapeError, TensorError


def shifted(array: np.ndarray[Any, Any], offset_bytes: int = 4) -> np.ndarray[Any, Any]:
    """The same values, `offset_bytes` past a 64-byte boundary."""
    raw = np.zeros(array.nbytes + 128, dtype=np.uint8)
    start = -raw.ctypes.data % 64 + offset_bytes
    result = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    assert result.ctypes.data % 64 == offset_bytes
    return result


def bindings(name: str) -> Iterator[dict[str, int]]:
    """Every binding of a library's declared range."""
    axes = {
        variable: facts.get("values") or range(facts["min"], facts["max"] + 1)
        for variable, facts in SPECS[name]["shape_vars"].items()
    }
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def keywords(library: Any, values: Mapping[str, int]) -> dict[str, int]:
    """The shape variables that a call passes by keyword."""
    return {name: values[name] for name in library.manifest["binding"]["keywords"]}


@pytest.mark.parametrize("name", SPECS)
def test_every_shape_of_the_range_is_right(name: str) -> None:
    library = dietcode.load(built(name))
    for values in bindings(name):
        arrays = draw(name, **values)
        right = expected(name, arrays)
        poisoned = np.full(right.shape, np.nan, dtype=np.float32)
        result = library(out=poisoned, **packed_arguments(library, arrays), **keywords(library, values))
        assert result is poisoned
        assert error(poisoned, right) <= SAFE_ERROR, values


def test_tensors_may_have_any_name() -> None:
    """Also those of what is generated: what packs, its arguments, extents and functions."""
    names = {"X": "extent_m", "W": "packed", "Y": "run"}
    data = spec_data(
        "names",
        tensors={names["X"]: {"dims": "mk", "dtype": "float32"}}
        | {names["W"]: {"dims": "nk", "dtype": "float32", "constant": True}},
        output={"name": names["Y"], "dtype": "float32"},
        shape_vars={"var_M": {"min": 1, "max": 3}},
        dims={"m": "var_M", "n": 20, "k": 7},
    )
    library = dietcode.load(built_of(json.dumps(data)))
    x, w = draw("rows", M=3)["X"][:, :7].copy(), draw("rows", M=3)["W"][:20, :7].copy()
    assert error(library(extent_m=x, packed=library.pack(packed=w)), x @ w.T) <= SAFE_ERROR


def test_the_keyword_library_takes_its_keyword() -> None:
    """Otherwise the test above would not cover a keyword at all."""
    assert dietcode.load(built("keyword")).manifest["binding"]["keywords"] == ["A"]


def test_nothing_but_the_output_is_written() -> None:
    library = dietcode.load(built("rows"))
    for rows in (1, 2, 3, 4, 5, 36, 69, 70):
        arrays = draw("rows", M=rows)
        around = np.full(rows * 100 + 256, 7.0, dtype=np.float32)
        middle = around[128:-128].reshape(rows, 100)
        library(out=middle, **packed_arguments(library, arrays))
        assert error(middle, expected("rows", arrays)) <= SAFE_ERROR
        assert (around[:128] == 7.0).all() and (around[-128:] == 7.0).all(), rows


@pytest.mark.parametrize("name", ["rows", "varying", "bmm"])
def test_inputs_may_have_any_alignment(name: str) -> None:
    library = dietcode.load(built(name))
    values = dict.fromkeys(SPECS[name]["shape_vars"], 19)
    for offset in (4, 20, 60):
        arrays = draw(name, **values)
        right = expected(name, arrays)
        moved = packed_arguments(library, {k: shifted(v, offset) for k, v in arrays.items()})
        out = shifted(np.full(right.shape, np.nan, dtype=np.float32), offset)
        assert library(out=out, **moved) is out
        assert error(out, right) <= SAFE_ERROR


def test_a_new_result_is_a_contiguous_float32_array_of_its_own() -> None:
    library = dietcode.load(built("dense"))
    arguments = packed_arguments(library, draw("dense", T=2))
    first, second = library(**arguments), library(**arguments)
    assert type(first) is np.ndarray and first.dtype == np.float32 and first.flags.c_contiguous
    assert not np.may_share_memory(first, second)
    np.testing.assert_array_equal(first, second)


def test_the_same_call_gives_the_same_bits_whatever_the_alignment_of_the_input() -> None:
    library = dietcode.load(built("rows"))
    arrays = draw("rows", M=33)
    weights = library.pack(W=arrays["W"])
    np.testing.assert_array_equal(
        library(X=arrays["X"], W=weights), library(X=shifted(arrays["X"]), W=weights)
    )


def test_read_only_inputs_are_taken_and_left_alone() -> None:
    library = dietcode.load(built("varying"))
    arrays = draw("varying", M=7)
    before = {name: value.copy() for name, value in arrays.items()}
    for value in arrays.values():
        value.setflags(write=False)
    assert error(library(**arrays), expected("varying", arrays)) <= SAFE_ERROR
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, before[name])
        assert not value.flags.writeable


def test_a_read_only_constant_can_be_packed() -> None:
    library = dietcode.load(built("dense"))
    arrays = draw("dense", T=1)
    arrays["W"].setflags(write=False)
    assert error(library(**packed_arguments(library, arrays)), expected("dense", arrays)) <= SAFE_ERROR


def test_packing_copies_so_that_the_constant_may_change_afterwards() -> None:
    library = dietcode.load(built("dense"))
    arrays = draw("dense", T=1)
    right = expected("dense", arrays)
    arguments = packed_arguments(library, arrays)
    arrays["W"][...] = np.nan
    assert error(library(**arguments), right) <= SAFE_ERROR


def test_a_memory_map_is_taken(tmp_path: Any) -> None:
    library = dietcode.load(built("varying"))
    arrays = draw("varying", M=5)
    np.save(tmp_path / "x.npy", arrays["X"])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert error(library(X=mapped, W=arrays["W"]), expected("varying", arrays)) <= SAFE_ERROR


@pytest.mark.parametrize("name", [name for name in SPECS if name != "epilogue"])
def test_nan_and_infinity_in_one_row_stay_in_that_row(name: str) -> None:
    library = dietcode.load(built(name))
    values = {v: max(f.get("values") or [f.get("max")]) for v, f in SPECS[name]["shape_vars"].items()}
    arrays = draw(name, **values)
    right = expected(name, arrays)
    rows = next(iter(SPECS[name]["tensors"]))
    for row in (0, arrays[rows].shape[-2] // 2, arrays[rows].shape[-2] - 1):
        for poison in (np.nan, np.inf):
            spoilt = {k: v.copy() for k, v in arrays.items()}
            spoilt[rows][..., row, 0] = poison
            result = library(**packed_arguments(library, spoilt), **keywords(library, values))
            assert not np.isfinite(result[..., row, :]).any()
            rest = np.delete(result, row, axis=-2)
            assert error(rest, np.delete(right, row, axis=-2)) <= SAFE_ERROR


def test_relu_keeps_nan_in_its_row() -> None:
    library = dietcode.load(built("epilogue"))
    arrays = draw("epilogue", T=3)
    right = expected("epilogue", arrays)
    arrays["X"][5, 3] = np.nan
    result = library(**packed_arguments(library, arrays))
    assert np.isnan(result[5]).all()
    assert error(np.delete(result, 5, axis=0), np.delete(right, 5, axis=0)) <= SAFE_ERROR


def test_dlpack_inputs_and_output() -> None:
    library = dietcode.load(built("varying"))
    arrays = draw("varying", M=9)
    right = expected("varying", arrays)
    result = library(X=DlpackOnly(arrays["X"]), W=DlpackOnly(arrays["W"]))
    assert isinstance(result, np.ndarray) and error(result, right) <= SAFE_ERROR
    memory = np.full(right.shape, np.nan, dtype=np.float32)
    out = DlpackOnly(memory)
    assert library(**arrays, out=out) is out
    assert error(memory, right) <= SAFE_ERROR


def test_a_constant_can_be_packed_from_dlpack() -> None:
    library = dietcode.load(built("dense"))
    arrays = draw("dense", T=3)
    weights = library.pack(W=DlpackOnly(arrays["W"]))
    assert error(library(X=arrays["X"], W=weights), expected("dense", arrays)) <= SAFE_ERROR


@pytest.mark.parametrize("name", SPECS)
def test_torch_in_torch_out(name: str) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built(name))
    values = next(bindings(name))
    arrays = draw(name, **values)
    tensors = {k: torch.from_numpy(v) for k, v in arrays.items()}
    arguments = packed_arguments(library, tensors) | keywords(library, values)
    right = expected(name, arrays)
    result = library(**arguments)
    assert isinstance(result, torch.Tensor) and result.dtype == torch.float32
    assert error(result.numpy(), right) <= SAFE_ERROR
    out = torch.full(right.shape, float("nan"))
    assert library(**arguments, out=out) is out
    assert error(out.numpy(), right) <= SAFE_ERROR


def test_a_torch_view_with_an_offset_and_a_numpy_out_beside_torch_inputs() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built("dense"))
    arrays = draw("dense", T=2)
    raw = torch.full((arrays["X"].size + 1,), float("nan"))
    view = raw[1:].view(arrays["X"].shape)
    view.copy_(torch.from_numpy(arrays["X"]))
    right = expected("dense", arrays)
    weights = library.pack(W=torch.from_numpy(arrays["W"]))
    assert error(library(X=view, W=weights).numpy(), right) <= SAFE_ERROR
    out = np.full(right.shape, np.nan, dtype=np.float32)
    assert library(X=view, W=weights, out=out) is out
    assert error(out, right) <= SAFE_ERROR


def test_torch_in_inference_mode_and_without_grad() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built("varying"))
    arrays = draw("varying", M=4)
    with torch.inference_mode():
        tensors = {k: torch.from_numpy(v) * 1.0 for k, v in arrays.items()}
        result = library(**tensors)
    assert error(result.numpy(), expected("varying", arrays)) <= SAFE_ERROR


@pytest.mark.parametrize("name", SPECS)
def test_select_tells_the_category_of_the_rule(name: str) -> None:
    library = dietcode.load(built(name))
    rows = {tuple(sorted(r["shape_vars"].items())): r["category"] for r in library.report["instances"]}
    assert set(rows.values()) == {0, 1}
    for values in bindings(name):
        category = library.select(**values)
        assert type(category) is int and category == rows[tuple(sorted(values.items()))]
        assert library.select(**{k: np.int64(v) for k, v in values.items()}) == category


def test_many_shapes_do_not_grow_the_cache_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietcode.runtime.library._MAX_CACHED_SHAPES", 4)
    library = dietcode.load(built("rows"))
    for rows in [*range(1, 71), *range(1, 71)]:
        arrays = draw("rows", M=rows)
        assert error(library(**packed_arguments(library, arrays)), expected("rows", arrays)) <= SAFE_ERROR
    assert len(library._shapes) <= 4


def test_the_report_and_the_table_can_be_read_from_the_library() -> None:
    library = dietcode.load(str(built("dense")))
    assert library.report["name"] == "dense" and len(library.dispatch["categories"]) == 2
    assert "dense" in repr(library) and "1…8" in repr(library)
    one, three = (dietcode.load(library.folder, num_threads=number) for number in (1, 3))
    assert repr(one).endswith("; 1 thread>") and repr(three).endswith("; 3 threads>")
    assert (one.num_threads, three.num_threads) == (1, 3), "each has its own"


def test_tensors_by_position_are_in_the_order_of_the_spec() -> None:
    library: Any = dietcode.load(built("rows"))
    x, w = np.ones((4, 37), np.float32), library.pack(W=np.ones((100, 37), np.float32))
    right = library(X=x, W=w)
    for result in (library(x, w), library(x, W=w), library.call_checked(None, {"X": x, "W": w})):
        np.testing.assert_array_equal(result, right)
    out = np.empty_like(right)
    assert library(x, w, out=out) is out
    assert str(inspect.signature(library)) == "(X, W, *, out=None)"
    with pytest.raises(TensorError, match=r"^given 3 tensors; allowed: X, W, in this order, or by name$"):
        library(x, w, x)
    with pytest.raises(TensorError, match=r"^X: given by position and by name; pass it once$"):
        library(x, X=x, W=w)
    with pytest.raises(TensorError, match=r"^W: missing; pass what lib\.pack"):
        library(x)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_an_empty_batch_has_an_empty_result(kind: str) -> None:
    library: Any = dietcode.load(built("rows"))
    x, out = np.ones((0, 37), np.float32), np.empty((0, 100), np.float32)
    if kind == "torch":
        torch = pytest.importorskip("torch", reason=of_extra("bench"))
        x, out = torch.from_numpy(x), torch.from_numpy(out)
    w = library.pack(W=np.ones((100, 37), np.float32))
    f = library.bind(W=w)
    for _ in range(3):
        for result in (library(X=x, W=w), f(x)):
            assert type(result) is type(x) and tuple(result.shape) == (0, 100) and result.dtype == x.dtype
        assert f(x, out=out) is out
    assert f(np.ones((2, 37), np.float32)).shape == (2, 100)
    with pytest.raises(ShapeError, match="M: 0; allowed"):
        library.select(M=0)
    with pytest.raises(ShapeError, match="X: extent 36 of axis 1"):
        f(x[:, :36] if kind == "numpy" else x[:, :36].contiguous())
