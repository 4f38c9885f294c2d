"""The short way of a call in C: it is taken, it does what the way in Python does, and it loses nothing."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from both_ways import load_both, outcome, short
from fresh_process import python
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import of_extra
from small_libraries import SAFE_ERROR, SPECS, built, built_of, draw, error, expected, spec_data

import dietcode
from dietcode.errors import LibraryError, TensorError
from dietcode.runtime import compiled
from dietcode.runtime.compile_launcher import python_headers
from dietcode.runtime.tensors import Packed

pytestmark = pytest.mark.skipif(
    python_headers() is None,
    reason="this machine's Python has no headers: calls stay in Python",
)
HALF_OUT = json.dumps(
    spec_data(
        "half-out",
        output={"name": "Y", "dtype": "float16"},
        shape_vars={"M": {"min": 1, "max": 9}},
        dims={"m": "M", "n": 20, "k": 7},
    )
)
# Tensors for `rows`, X [M, 37] and W [100, 37], right ones and wrong ones; the letter is the kind.
GIVEN = {
    "x": lambda: np.ones((4, 37), np.float32),
    "short": lambda: np.ones((2, 37), np.float32),
    "read-only": lambda: np.broadcast_to(np.float32(1), (4, 37)).copy(),
    "wide": lambda: np.ones((4, 74), np.float32)[:, ::2],
    "fortran": lambda: np.asfortranarray(np.ones((4, 37), np.float32)),
    "double": lambda: np.ones((4, 37)),
    "swapped": lambda: np.ones((4, 37), ">f4"),
    "unaligned": lambda: np.frombuffer(b"\0" * 593, np.float32, offset=1).reshape(4, 37),
    "record": lambda: np.ones((4, 37), [("a", "f4")]),
    "masked": lambda: np.ma.ones((4, 37), np.float32),
    "36 columns": lambda: np.ones((4, 36), np.float32),
    "flat": lambda: np.ones(4 * 37, np.float32),
    "scalar": lambda: np.float32(1),
    "no dimension": lambda: np.array(1, np.float32),
    "no rows": lambda: np.ones((0, 37), np.float32),
    "many rows": lambda: np.ones((5000, 37), np.float32),
    "list": lambda: [[1.0] * 37] * 4,
    "none": lambda: None,
    "dlpack": lambda: tvm_ffi.from_dlpack(np.ones((4, 37), np.float32)),
}
TORCH_GIVEN = {
    "torch": lambda torch: torch.ones(4, 37),
    "torch wide": lambda torch: torch.ones(4, 74)[:, ::2],
    "torch strided row": lambda torch: torch.ones(1, 74)[:, :37],
    "torch double": lambda torch: torch.ones(4, 37, dtype=torch.float64),
    "torch negated": lambda torch: torch._neg_view(torch.ones(4, 37)),
    "torch with gradient": lambda torch: torch.ones(4, 37, requires_grad=True),
    "torch parameter": lambda torch: torch.nn.Parameter(torch.ones(4, 37)),
    "torch sparse": lambda torch: torch.ones(4, 37).to_sparse(),
    "torch meta": lambda torch: torch.ones(4, 37, device="meta"),
    "torch onednn": lambda torch: torch.ones(4, 37).to_mkldnn(),
    "torch of no rows": lambda torch: torch.ones(0, 37),
}
OUTS = {
    "none": lambda: None,
    "out": lambda: np.empty((4, 100), np.float32),
    "out of 2 rows": lambda: np.empty((2, 100), np.float32),
    "out wide": lambda: np.empty((4, 200), np.float32)[:, ::2],
    "out double": lambda: np.empty((4, 100)),
    "out read-only": lambda: np.broadcast_to(np.float32(0), (4, 100)),
    "out list": lambda: [],
}
TORCH_OUTS = {
    "torch out": lambda torch: torch.empty(4, 100),
    "torch out with gradient": lambda torch: torch.empty(4, 100, requires_grad=True),
    "torch out transposed": lambda torch: torch.empty(100, 4).T,
}


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", sorted(SPECS))
def test_what_is_right_goes_the_short_way(name: str, kind: str) -> None:
    library = dietcode.load(built(name))
    arrays = draw(name, **dict.fromkeys(SPECS[name]["shape_vars"], 2))
    tensors: dict[str, Any] = dict(arrays)
    if kind == "torch":
        torch = pytest.importorskip("torch", reason=of_extra("bench"))
        tensors = {tensor: torch.from_numpy(array) for tensor, array in arrays.items()}
    packed = {tensor: library.pack(**{tensor: tensors[tensor]}) for tensor in library.manifest["packed"]}
    keywords = dict.fromkeys(library.manifest["binding"]["keywords"], 2)
    named = tensors | packed | keywords
    assert short(library, **named) is NotImplemented, "a shape that nobody has looked at"
    first = library(**named)
    right = expected(name, arrays)
    out = first * 0
    order = library.manifest["argument_order"]
    bound = library.bind(**{tensor: (tensors | packed)[tensor] for tensor in order[1:]})
    free = (tensors | packed)[order[0]]
    for result in (
        short(library, **named),
        short(library, **named, out=None),
        short(library, **named, out=out),
        short(bound, free, **keywords),
        short(bound, free, **keywords, out=out),
    ):
        assert result is not NotImplemented, "C leaves to Python what it could do itself"
        assert type(result) is type(first) and error(result, right) <= SAFE_ERROR
    assert short(bound, free, free, **keywords) is NotImplemented
    assert short(library, **named, unknown=1) is NotImplemented


def test_any_tensors_give_what_they_give_in_python() -> None:
    both = load_both(built("rows"))
    arrays = draw("rows", M=4)
    packed = [library.pack(W=arrays["W"]) for library in both]
    bound = [library.bind(W=arrays["W"]) for library in both]
    torch: Any = None
    names, outs = sorted(GIVEN), sorted(OUTS)
    try:
        import torch
    except ImportError:
        pass
    else:
        names, outs = names + sorted(TORCH_GIVEN), outs + sorted(TORCH_OUTS)
        with torch.no_grad():
            for f in bound:
                f(torch.ones(4, 37))
    for f in bound:
        f(np.ones((4, 37), np.float32))

    def make(name: str, plain: dict[str, Any], of_torch: dict[str, Any]) -> Any:
        return plain[name]() if name in plain else of_torch[name](torch)

    @settings(max_examples=400, deadline=None)
    @given(
        st.sampled_from(names), st.sampled_from(outs), st.sampled_from(["packed", "plain", "other", "both"])
    )
    def check(name: str, out_name: str, weight: str) -> None:
        results = []
        for library, f, w in zip(both, bound, packed, strict=True):
            x, out = make(name, GIVEN, TORCH_GIVEN), make(out_name, OUTS, TORCH_OUTS)
            other = Packed("V", w.shape, w.layout, w.data)
            weights = {"packed": w, "plain": arrays["W"], "other": other}
            if weight == "both":
                results.append((outcome(lambda f=f, x=x, out=out: f(x, out=out)), name))
            else:
                given_w = weights[weight]
                results.append(outcome(lambda l=library, x=x, out=out, w=given_w: l(X=x, W=w, out=out)))  # noqa: E741
        assert results[0] == results[1]

    check()


def test_keywords_that_are_no_integers_give_what_they_give_in_python() -> None:
    both = load_both(built("keyword"))
    arrays = draw("keyword", A=2, B=3)
    bound = [library.bind(W=arrays["W"]) for library in both]
    for value in (2, 2, True, 2.0, np.int64(2), 2**70, -1, -(2**63), None, "2"):
        results = [outcome(lambda f=f, value=value: f(arrays["X"], A=value)) for f in bound]
        assert results[0] == results[1], value


def test_what_is_bound_to_nothing_is_bound() -> None:
    arrays = draw("bmm", T=3)
    results = []
    for library in load_both(built("bmm")):
        library(**arrays)
        f = library.bind(V=None)
        results.append([outcome(lambda f=f, given=given: f(*given)) for given in ((), arrays.values())])
        results[-1].append(outcome(lambda f=f: f(arrays["P"])))
    assert results[0] == results[1]
    assert [kind for kind, *_ in results[0]] == [TensorError] * 3


def test_an_output_over_an_input_is_refused_as_in_python() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    area = np.zeros(600, np.float32)
    bound = [library.bind(W=draw("rows", M=4)["W"]) for library in load_both(built("rows"))]
    for start in (0, 147, 148, 200):
        for kind in (np.asarray, torch.from_numpy):
            x, out = kind(area)[:148].reshape(4, 37), kind(area)[start : start + 400].reshape(4, 100)
            results = []
            for f in bound:
                f(x)
                area[:] = 1
                results.append(outcome(lambda f=f, x=x, out=out: f(x, out=out)))
            assert results[0] == results[1]
            assert isinstance(results[0][1], str) == (start < 148)


def test_a_half_precision_output() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built_of(HALF_OUT))
    x, f = np.ones((3, 7), np.float32), library.bind(W=np.ones((20, 7), np.float32))
    f(x)
    for _ in range(2):
        assert short(f, x).dtype == np.float16 and (f(x) == 7).all()
        assert short(f, torch.from_numpy(x)).dtype is torch.float16
    assert short(f, x, out=np.empty((3, 20), np.float32)) is NotImplemented


def test_errors_of_the_code_are_left_to_the_long_way() -> None:
    library = dietcode.load(built("rows"))
    seen = []

    def run(x: Any, w: Any, y: Any, rows: int) -> None:
        seen.append((tuple(x.shape), len(w.shape), tuple(y.shape), rows))
        raise ValueError("no")

    library._run = library._run_beside_torch = tvm_ffi.convert(run)
    library._prepare_calls()
    x, w = np.ones((4, 37), np.float32), library.pack(W=np.ones((100, 37), np.float32))
    library.resolve([x.shape, w.shape], ())
    assert short(library, X=x, W=w) is NotImplemented and seen == [((4, 37), 4, (4, 100), 4)]
    with pytest.raises(LibraryError, match="its code takes other tensors: no; compile it again"):
        library(X=x, W=w)


def test_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def interrupted(*given: Any) -> Any:
        asked.append(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiled, "_aligned", interrupted)
    library = dietcode.load(built("rows"))
    x, w = np.ones((70, 37), np.float32), library.pack(W=np.ones((100, 37), np.float32))
    library.resolve([x.shape, w.shape], ())
    assert library.compiled is not None
    with pytest.raises(KeyboardInterrupt):
        library(X=x, W=w)
        declined = short(library, X=x, W=w) is NotImplemented
        pytest.fail(f"it returned, asked for memory {asked}; C leaves this call to Python: {declined}")
    assert asked == [((70, 100), np.dtype(np.float32))]


def test_a_library_looks_as_one_in_python() -> None:
    library = dietcode.load(built("rows"))
    f = library.bind(W=np.ones((100, 37), np.float32))
    for what in (library, f):
        call = type(what).__call__
        assert inspect.isfunction(call) and "Compute the operator" in (call.__doc__ or "")
        assert inspect.signature(what).parameters["out"].default is None
        assert copy.copy(what) is what
        assert type(pickle.loads(pickle.dumps(what))) is type(what)
    assert copy.deepcopy(library) is library

    class Doubled(type(library)):  # type: ignore[misc]
        def __call__(self, **arguments: Any) -> Any:
            return 2 * super().__call__(**arguments)

    x, w = np.ones((4, 37), np.float32), library.pack(W=np.ones((100, 37), np.float32))
    assert (library(X=x, W=w) == 37).all()
    doubled = Doubled(library.folder, library.manifest, {"run": library._run, "select": None, "pack": None})
    doubled.compiled = None
    assert (doubled(X=x, W=w) == 74).all()


def test_what_a_compiled_call_is_made_of_is_looked_at() -> None:
    make: Any = compiled.CompiledCall
    for arguments in ((), (1, 2), ((None, None), (), (), 0, {}, (int, int, None, None, None))):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            make(*arguments)
    library = dietcode.load(built("rows"))
    for given_wrong in ((), (None, {}), ((), None), ((), {}, None)):
        with pytest.raises(TypeError, match="attempt: takes a tuple of tensors"):
            library.compiled.attempt(*given_wrong)
    for values in (None, (), [None]):
        with pytest.raises(TypeError, match="bind: takes a dict of tensors by name"):
            library.compiled.bind(values)
    for kept in ({"W": None}, {"W": (None,)}, {"W": (None, "0")}, None):
        with pytest.raises(TypeError):
            library.compiled.bind({}).watch({}, kept, (), ())
    for watched in ((([],), ()), ((), (None,)), ([], ()), ((), None)):
        with pytest.raises(TypeError):
            library.compiled.bind({}).watch({}, {}, *watched)
    tensor = ("X", 9, 2, 32, b"f", None, None)
    with pytest.raises(ValueError, match="X: 9 dimensions; allowed: up to 8"):
        make(
            (library._run, library._run), (tensor, tensor), (), 0, {}, (int, int, None, None, (None,), (-1,))
        )


def test_tensors_without_memory_are_left_to_python() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    from torch._subclasses import FakeTensorMode

    library = dietcode.load(built("rows"))
    x, f = torch.ones(4, 37), library.bind(W=np.ones((100, 37), np.float32))
    f(x)
    with FakeTensorMode():
        assert short(f, x) is NotImplemented
    assert (f(x) == 37).all()


@pytest.mark.thorough
def test_a_pytorch_without_the_exchange_interface_goes_the_way_in_python() -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    script = """
import sys
import numpy as np
import torch
del torch.Tensor.__dlpack_c_exchange_api__
import dietcode
library = dietcode.load(sys.argv[1])
x, w = torch.ones(4, 37), torch.ones(100, 37)
packed, f, op = library.pack(W=w), library.bind(W=w), library.torch_op(W=w)
library.call_checked = lambda out, arguments: sys.exit("the long way")
library.resolve([x.shape, w.shape], ())
for _ in range(2):
    for result in (library(X=x, W=packed), f(x), f(x, out=torch.empty(4, 100)), op(x)):
        assert (result == 37).all()
assert library.compiled.attempt((), {"X": x, "W": packed}) is NotImplemented
assert library.compiled.attempt((), {"X": x.numpy(), "W": packed}) is not NotImplemented
"""
    python(script, built("rows"), env={"TVM_FFI_DISABLE_TORCH_C_DLPACK": "1"})
