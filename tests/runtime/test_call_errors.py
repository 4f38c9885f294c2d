"""What a call refuses, each time with one line that names the tensor, the range or the feature."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlpack_tensors import DlpackOnly
from needs import of_extra
from small_libraries import (
    SAFE_ERROR,
    built,
    copy_of,
    draw,
    error,
    expected,
    packed_arguments,
    rewrite_manifest,
)

import dietcode
from dietcode.errors import DietCodeError, LibraryError, ShapeError, TargetError, TensorError
from dietcode.runtime.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("way")


def refused(kind: type[DietCodeError], pattern: str, call: Callable[[], Any]) -> None:
    """`call` must raise `kind` with one line that matches."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400, message
    assert re.search(pattern, message), message


@pytest.fixture
def dense() -> Any:
    return dietcode.load(built("dense"))


@pytest.fixture
def varying() -> Any:
    return dietcode.load(built("varying"))


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        ((16 * 9, 48), r"^T: 9; allowed: 1…8"),
        ((16 * 100_000, 48), r"^T: 100000; allowed: 1…8"),
        ((17, 48), r"^X: extent 17 of axis 0 is not 16\*T"),
        ((16, 47), r"^X: extent 47 of axis 1; allowed: 48"),
        ((16, 0), r"^X: extent 0 of axis 1; allowed: 48"),
        ((16,), r"^X: shape \[16\]; allowed: 2 dimensions"),
        ((), r"^X: shape \[\]; allowed: 2 dimensions"),
        ((1, 16, 48), r"^X: shape \[1, 16, 48\]; allowed: 2 dimensions"),
    ],
)
def test_shapes_outside_the_declared_range(dense: Any, shape: tuple[int, ...], pattern: str) -> None:
    weights = dense.pack(W=zeros(64, 48))
    refused(ShapeError, pattern, lambda: dense(X=np.empty(shape, dtype=np.float32), W=weights))


def test_shapes_that_disagree_with_each_other(varying: Any) -> None:
    library = dietcode.load(built("bmm"))
    refused(
        ShapeError,
        r"^P: extent 5 of axis 2; allowed: T = 4",
        lambda: library(P=zeros(3, 4, 5), V=zeros(3, 5, 20)),
    )
    refused(
        ShapeError,
        r"^V: extent 5 of axis 1; allowed: T = 4",
        lambda: library(P=zeros(3, 4, 4), V=zeros(3, 5, 20)),
    )
    refused(ShapeError, r"^W: extent 51 of axis 0", lambda: varying(X=zeros(3, 21), W=zeros(51, 21)))


def test_an_epilogue_tensor_of_another_shape() -> None:
    library = dietcode.load(built("epilogue"))
    arguments = packed_arguments(library, draw("epilogue", T=2))
    refused(
        ShapeError,
        r"^bias: extent 39 of axis 0; allowed: 40",
        lambda: library(**arguments | {"bias": zeros(39)}),
    )
    refused(
        ShapeError,
        r"^R: extent 4 of axis 0; allowed: 4\*T = 8",
        lambda: library(**arguments | {"R": zeros(4, 40)}),
    )


def test_values_between_the_declared_ones() -> None:
    library = dietcode.load(built("values"))
    weights = library.pack(W=zeros(32, 16))
    for value in (3, 5, 8, 10):
        refused(
            ShapeError,
            rf"^T: {value}; allowed: one of 1, 2, 4, 9",
            lambda value=value: library(X=zeros(3 * value, 16), W=weights),
        )


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", ">f4", "complex64", "bool", "O", "U3"])
def test_another_dtype(varying: Any, dtype: str) -> None:
    refused(
        TensorError,
        r"^W: dtype .*allowed: float32",
        lambda: varying(X=zeros(2, 21), W=zeros(50, 21, dtype=dtype)),
    )
    refused(
        TensorError,
        r"^out: dtype .*allowed: float32",
        lambda: varying(X=zeros(2, 21), W=zeros(50, 21), out=zeros(2, 50, dtype=dtype)),
    )


@pytest.mark.parametrize(
    "value",
    [
        np.asfortranarray(np.ones((2, 21), np.float32)),
        np.broadcast_to(zeros(1, 21), (2, 21))[:, :20],
        zeros(2, 42)[:, ::2],
        zeros(2, 21)[:, ::-1],
    ],
)
def test_not_contiguous(varying: Any, value: Any) -> None:
    refused(TensorError, r"^X: not contiguous", lambda: varying(X=value, W=zeros(50, 21)))


def test_rows_that_lie_apart_are_copied_together(varying: Any) -> None:
    rng = np.random.default_rng(0)
    wide, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((8, 40), (50, 21)))
    lean, before = varying.bind(W=w), wide.copy()
    for x in (wide[:, 3:24], wide[::2, :21], wide[1:7:3, 5:26]):
        right = varying(X=np.ascontiguousarray(x), W=w)
        np.testing.assert_array_equal(varying(X=x, W=w), right)
        np.testing.assert_array_equal(varying(x, w, out=np.empty_like(right)), right)
        np.testing.assert_array_equal(lean(x), right)
    np.testing.assert_array_equal(wide, before)


def test_a_masked_array(varying: Any) -> None:
    """Its mask would be nowhere in the result; where it masks nothing, nothing is lost."""
    x, w, out = (np.ma.masked_array(np.ones(shape, np.float32)) for shape in ((2, 21), (50, 21), (2, 50)))
    assert (varying(X=x, W=w, out=out) == 21).all()
    w[0, 0] = out[0, 0] = np.ma.masked
    refused(TensorError, "^W: a masked array", lambda: varying(X=x, W=w))
    refused(TensorError, "^out: a masked array", lambda: varying(X=x, W=w.filled(0), out=out))


@pytest.mark.parametrize("value", [[[1.0] * 21], 1.5, "text", object(), np.float32(1), memoryview(b"1234")])
def test_no_tensor_at_all(varying: Any, value: Any) -> None:
    refused(TensorError, r"^X: ", lambda: varying(X=value, W=zeros(50, 21)))


def test_a_dlpack_export_that_fails_or_is_no_cpu_tensor(varying: Any) -> None:
    class Broken:
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("the device\nis gone")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    refused(TensorError, r"^X: .*DLPack", lambda: varying(X=Broken(), W=zeros(50, 21)))


def test_read_only_memory_by_dlpack_is_read_and_not_written(varying: Any) -> None:
    x, out = np.ones((2, 21), np.float32), zeros(2, 50)
    for array in (x, out):
        array.setflags(write=False)
    for value in (DlpackOnly(x), x):
        assert (varying(X=value, W=np.ones((50, 21), np.float32)) == 21).all()
    refused(TensorError, "^out: .*read-?only", lambda: varying(X=x, W=zeros(50, 21), out=DlpackOnly(out)))

    class Older(DlpackOnly):
        def __dlpack__(self, stream: Any = None) -> Any:
            return self.array.__dlpack__()

    refused(TensorError, "^X: its DLPack export failed: .*readonly", lambda: varying(X=Older(x), W=x))


def test_a_dlpack_tensor_of_another_dtype_or_layout(varying: Any) -> None:
    for array, pattern in (
        (zeros(2, 21, dtype=np.float64), "^X: dtype float64"),
        (zeros(2, 42)[:, ::2], "^X: not contiguous; pass a copy that is"),
    ):
        refused(TensorError, pattern, lambda array=array: varying(X=DlpackOnly(array), W=zeros(50, 21)))
    x, w = np.arange(84, dtype=np.float32).reshape(4, 21), np.ones((50, 21), np.float32)
    assert np.array_equal(varying(X=DlpackOnly(x[::2]), W=w), varying(X=x[::2], W=w))


def test_rows_of_torch_that_lie_apart(varying: Any) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    wide, w = torch.randn(6, 40), torch.randn(50, 21)
    for x in (wide[:, 3:24], wide[::2, :21]):
        torch.testing.assert_close(varying(X=x, W=w), varying(X=x.contiguous(), W=w), rtol=0, atol=0)
    graded = wide.requires_grad_()[:, 3:24]
    refused(TensorError, "^X: requires grad", lambda: varying(X=graded, W=w))
    refused(TensorError, "^X: not contiguous", lambda: varying(X=torch.zeros(42, 2).T[:, :21], W=w))


def freed(tensor: Any) -> Any:
    """Return the tensor without its memory, as what shards a model's parameters does."""
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.filterwarnings("ignore:.*(Sparse CSR|nested tensors)")  # PyTorch, of all of them
def test_torch_tensors_that_are_refused(varying: Any, dense: Any) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    good = torch.zeros(2, 21)
    cases = [
        (torch.zeros(2, 21, requires_grad=True), "^X: requires grad.*detach"),
        (torch.nn.Parameter(good), "^X: requires grad"),
        (torch.zeros(2, 21, dtype=torch.float64), "^X: dtype torch.float64; allowed: float32"),
        (torch.zeros(2, 21, dtype=torch.bfloat16), "^X: dtype torch.bfloat16"),
        (torch.zeros(21, 2).T, "^X: not contiguous"),
        (torch.zeros(2, 21, device="meta"), "^X: on meta"),
        (good.to_sparse(), r"^X: of layout torch\.sparse_coo; pass X\.to_dense\(\)"),
        (good.to_sparse_csr(), "^X: of layout torch.sparse_csr"),
        (good.to_mkldnn(), "^X: of layout torch._mkldnn"),
        (torch.nested.nested_tensor([good[:1], good[1:]]), "^X: a nested tensor"),
        (freed(torch.zeros(2, 21)), "^X: its storage was freed or made shorter, to 0 bytes"),
        (torch._efficientzerotensor((2, 21)), "^X: without memory"),
    ]
    for value, pattern in cases:
        refused(TensorError, pattern, lambda value=value: varying(X=value, W=zeros(50, 21)))
    refused(
        TensorError,
        "^out: its storage was freed",
        lambda: varying(X=good, W=zeros(50, 21), out=freed(torch.zeros(2, 50))),
    )
    refused(
        TensorError,
        "^out: requires grad",
        lambda: varying(X=good, W=zeros(50, 21), out=torch.zeros(2, 50, requires_grad=True)),
    )
    assert dense.pack(W=torch.nn.Parameter(torch.zeros(64, 48))).shape == (64, 48)  # once, of values alone


def test_missing_and_unknown_arguments(varying: Any, dense: Any) -> None:
    refused(TensorError, "^W: missing", lambda: varying(X=zeros(2, 21)))
    refused(TensorError, "^X: missing", varying)
    refused(
        TensorError,
        "^Z: unknown argument; allowed: W, X, out",
        lambda: varying(X=zeros(2, 21), W=zeros(50, 21), Z=1),
    )
    refused(TensorError, "^T: unknown argument", lambda: varying(X=zeros(2, 21), W=zeros(50, 21), T=1))
    refused(TensorError, r"^W: missing; pass what lib.pack", lambda: dense(X=zeros(16, 48)))


def test_keywords_that_are_missing_or_wrong() -> None:
    library = dietcode.load(built("keyword"))
    weights = library.pack(W=zeros(32, 16))
    x = zeros(12, 16)
    assert library(X=x, W=weights, A=2).shape == (12, 32)
    refused(ShapeError, "^A: missing; no tensor's shape tells it", lambda: library(X=x, W=weights))
    for value in (2.0, "2", True, None, [2], np.arange(500), "2\n" * 500):
        refused(ShapeError, "^A: ", lambda value=value: library(X=x, W=weights, A=value))
    refused(ShapeError, "^A: 0|X: extent 12", lambda: library(X=x, W=weights, A=0))
    refused(ShapeError, "^A: 12; allowed: 1…4|B: 1; allowed: 2…6", lambda: library(X=x, W=weights, A=12))
    refused(ShapeError, r"^X: extent 12 of axis 0 is not A\*B", lambda: library(X=x, W=weights, A=5))
    refused(ShapeError, "A: -2|X: extent", lambda: library(X=x, W=weights, A=-2))
    assert library(X=x, W=weights, A=np.int32(4)).shape == (12, 32)


def test_an_unpacked_constant(dense: Any) -> None:
    refused(
        TensorError,
        r"^W: ndarray; pass what lib.pack\(W=…\) returned",
        lambda: dense(X=zeros(16, 48), W=zeros(64, 48)),
    )


def test_a_constant_packed_by_another_library(dense: Any) -> None:
    other = dietcode.load(built("rows")).pack(W=zeros(100, 37))
    refused(ShapeError, "^W: extent 100 of axis 0; allowed: 64", lambda: dense(X=zeros(16, 48), W=other))


def test_a_constant_packed_in_another_layout_or_under_another_name(dense: Any) -> None:
    from dietcode.runtime.tensors import Packed

    right = dense.pack(W=zeros(64, 48))
    for name, layout in (("V", right.layout), ("W", "nk -> [n/3, k, n%3]")):
        wrong = Packed(name, right.shape, layout, right.data)
        assert (
            repr(wrong).startswith(f"Packed({name}[") and "\n" not in repr(wrong) and len(repr(wrong)) < 200
        )
        refused(TensorError, "^W: packed as", lambda wrong=wrong: dense(X=zeros(16, 48), W=wrong))


def test_a_packed_constant_where_a_plain_tensor_belongs(dense: Any, varying: Any) -> None:
    weights = dense.pack(W=zeros(64, 48))
    refused(TensorError, "^X: Packed", lambda: dense(X=weights, W=weights))
    refused(TensorError, "^W: Packed", lambda: varying(X=zeros(2, 21), W=weights))


def test_what_pack_refuses(dense: Any, varying: Any) -> None:
    refused(TensorError, "^pack: given X; allowed: one of W", lambda: dense.pack(X=zeros(16, 48)))
    refused(TensorError, "^pack: given nothing", dense.pack)
    refused(TensorError, "^pack: given W, X", lambda: dense.pack(W=zeros(64, 48), X=zeros(16, 48)))
    refused(TensorError, "none: this library has no constant", lambda: varying.pack(W=zeros(50, 21)))
    refused(TensorError, "^W: dtype float64", lambda: dense.pack(W=zeros(64, 48, dtype=np.float64)))
    refused(TensorError, "^W: not contiguous", lambda: dense.pack(W=zeros(48, 64).T))
    refused(ShapeError, "^W: extent 48 of axis 0; allowed: 64", lambda: dense.pack(W=zeros(48, 64)))
    refused(ShapeError, r"^W: shape \[64\]; allowed: 2 dimensions", lambda: dense.pack(W=zeros(64)))
    refused(ShapeError, "^W: extent 0 of axis 0", lambda: dense.pack(W=zeros(0, 48)))


def test_out_that_does_not_fit(varying: Any) -> None:
    arrays = {"X": zeros(3, 21), "W": zeros(50, 21)}
    read_only = zeros(3, 50)
    read_only.setflags(write=False)
    refused(TensorError, "^out: read-only", lambda: varying(**arrays, out=read_only))
    for shape in ((3, 51), (2, 50), (50, 3), (150,), (1, 3, 50), (0, 50)):
        refused(
            ShapeError,
            r"^out: shape .*allowed: \[3, 50\]",
            lambda shape=shape: varying(**arrays, out=zeros(*shape)),
        )
    refused(TensorError, "^out: not contiguous", lambda: varying(**arrays, out=zeros(50, 3).T))
    refused(TensorError, "^out: ", lambda: varying(**arrays, out=[0.0]))


def test_out_that_overlaps_an_input() -> None:
    library = dietcode.load(built("bmm"))
    raw = np.arange(3 * 20 * 20 * 2, dtype=np.float32)
    half = 3 * 20 * 20
    x, v = raw[:half].reshape(3, 20, 20), zeros(3, 20, 20)
    for start in (0, 1, half - 1):
        out = raw[start : start + half].reshape(3, 20, 20)
        refused(TensorError, "^out: overlaps", lambda out=out: library(P=x, V=v, out=out))
    beside = raw[half:].reshape(3, 20, 20)
    assert library(P=x, V=v, out=beside) is beside
    x.setflags(write=False)
    refused(
        TensorError, "^out: overlaps", lambda: library(P=x, V=v, out=raw[1 : half + 1].reshape(3, 20, 20))
    )


def test_out_that_overlaps_an_input_of_torch() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built("bmm"))
    x, v = torch.ones(3, 20, 20), torch.ones(3, 20, 20)
    refused(TensorError, "^out: overlaps", lambda: library(P=x, V=v, out=x))
    refused(TensorError, "^out: overlaps", lambda: library(P=x, V=v, out=v.numpy()))
    refused(TensorError, "^out: overlaps", lambda: library(P=x.numpy(), V=v, out=x))


def test_out_that_overlaps_a_packed_constant(dense: Any) -> None:
    weights = dense.pack(W=zeros(64, 48))
    out = weights.data.reshape(-1)[: 16 * 64].reshape(16, 64)
    refused(TensorError, "^out: overlaps", lambda: dense(X=zeros(16, 48), W=weights, out=out))


def test_out_that_was_refused_is_untouched(varying: Any) -> None:
    out = np.full((3, 51), 7.0, dtype=np.float32)
    refused(ShapeError, "^out", lambda: varying(X=zeros(3, 21), W=zeros(50, 21), out=out))
    assert (out == 7.0).all()


def test_a_refused_call_leaves_the_library_usable(varying: Any) -> None:
    arrays = draw("varying", M=2)
    for _ in range(3):
        refused(ShapeError, "^M: 21; allowed: 1…20", lambda: varying(X=zeros(21, 21), W=zeros(50, 21)))
        assert error(varying(**arrays), expected("varying", arrays)) <= SAFE_ERROR


def test_what_select_refuses(dense: Any) -> None:
    refused(ShapeError, r"^select: given \[\]; allowed: \['T'\]", dense.select)
    refused(ShapeError, r"^select: given \['M', 'T'\]", lambda: dense.select(T=1, M=1))
    for value in (0, 9, -1, 2**63, 2**200, -(2**200)):
        refused(ShapeError, r"^T: .*; allowed: 1…8", lambda value=value: dense.select(T=value))
    for value in (1.0, "1", None, True, np.float32(1), [1]):
        refused(ShapeError, r"^T: .*allowed: an integer", lambda value=value: dense.select(T=value))
    values = dietcode.load(built("values"))
    refused(ShapeError, "^T: 3; allowed: one of 1, 2, 4, 9", lambda: values.select(T=3))


def test_a_keyword_that_is_no_integer_of_any_size() -> None:
    library = dietcode.load(built("keyword"))
    weights = library.pack(W=zeros(32, 16))
    refused(ShapeError, "X: extent|A: ", lambda: library(X=zeros(12, 16), W=weights, A=2**200))


def test_a_cpu_without_a_feature_of_the_manifest(tmp_path: Path) -> None:
    folder = copy_of("dense", tmp_path / "lib")
    features = dietcode.load(built("dense")).manifest["requires"]
    rewrite_manifest(
        folder, requires=features | {"cpu_features": [*features["cpu_features"], "avx99", "fma9"]}
    )
    refused(TargetError, "avx99, fma9", lambda: dietcode.load(folder))


def test_a_cpu_without_avx512_as_the_system_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietcode.runtime.loading.missing_features", lambda features: list(features)[:1])
    features = read_manifest(built("dense"))["requires"]["cpu_features"]
    assert features, "the library of this test lists what it needs"
    refused(TargetError, f"needs a CPU with {re.escape(features[0])}", lambda: dietcode.load(built("dense")))


@pytest.mark.parametrize(("field", "value"), [("machine", "riscv64"), ("system", "Plan9")])
def test_another_machine_or_system(tmp_path: Path, field: str, value: str) -> None:
    folder = copy_of("dense", tmp_path / "lib")
    requires = dietcode.load(built("dense")).manifest["requires"]
    rewrite_manifest(folder, requires=requires | {field: value})
    refused(TargetError, value, lambda: dietcode.load(folder))


@pytest.mark.parametrize("num_threads", [0, -1, "2", 1.5, True, 1025, 2**70])
def test_num_threads_that_are_none_or_too_many(num_threads: Any) -> None:
    refused(
        LibraryError,
        rf"^num_threads: given {num_threads!r}; allowed: an integer of 1…1024",
        lambda: dietcode.load(built("dense"), num_threads=num_threads),
    )


def test_num_threads_of_another_kind_of_integer() -> None:
    assert repr(dietcode.load(built("dense"), num_threads=np.int64(1))).endswith("; 1 thread>")
