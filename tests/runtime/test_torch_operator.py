"""``lib.torch_op`` and `dietcode.nn`: eager, compiled, exported, copied, saved; refused where it must be."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import ROOT, SAFE_ERROR, SPECS, built, built_of, draw, error, expected, spec_data
from torch_layers import LONG_ROWS, close, replaced_nets

import dietcode
from dietcode.errors import ShapeError, TensorError

torch = pytest.importorskip("torch", reason=of_extra("bench"))


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """PyTorch compiles a function of a process eight times at most, for all tests together."""
    torch._dynamo.reset()


@pytest.fixture
def library() -> Any:
    return dietcode.load(built_of(LONG_ROWS))


@pytest.fixture
def nets(library: Any) -> tuple[Any, Any]:
    return replaced_nets(library)


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("name", ["rows", "varying", "bmm", "epilogue", "keyword", "dense", "order"])
def test_an_operator_is_right_and_obeys_pytorch_s_rules(name: str) -> None:
    library = dietcode.load(built(name))
    values = dict.fromkeys(SPECS[name]["shape_vars"], 3)
    arrays = draw(name, **values)
    tensors = {tensor: torch.from_numpy(array) for tensor, array in arrays.items()}
    bound = {tensor: tensors[tensor] for tensor in library.manifest["packed"]}
    keywords = {keyword: values[keyword] for keyword in library.manifest["binding"]["keywords"]}
    op = library.torch_op(**bound)
    free = [tensors[tensor] for tensor in library.manifest["argument_order"] if tensor not in bound]
    right = expected(name, arrays)
    for _ in range(2):
        assert error(op(*free, **keywords), right) <= SAFE_ERROR
    by_name = {tensor: value for tensor, value in tensors.items() if tensor not in bound}
    assert error(op(**by_name, **keywords), right) <= SAFE_ERROR
    all_bound = library.torch_op(**tensors)
    assert error(all_bound(**keywords), right) <= SAFE_ERROR
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        assert error(compiled(*free, **keywords), right) <= SAFE_ERROR
    shapes = {tensor: arrays[tensor].shape for tensor in bound}
    packed = {tensor: getattr(op, f"bound_{tensor}") for tensor in bound}
    arguments = op._operator.arguments(tensors | packed, shapes, values)
    torch.library.opcheck(op._operator.overload, tuple(arguments))


def test_libraries_of_the_same_code_are_operators_of_their_own() -> None:
    """Their tensors have other names, and the shape of X has one beside X_shape."""
    for names in (("X", "W"), ("input", "factor"), ("X_shape", "X")):
        data = spec_data(
            "7-rows",  # an operator's name begins with a letter
            tensors={names[0]: {"dims": "mk", "dtype": "float32"}}
            | {names[1]: {"dims": "nk", "dtype": "float32", "constant": True}},
            shape_vars={"M": {"min": 1, "max": 9}},
            dims={"m": "M", "n": 20, "k": 8},
        )
        library = dietcode.load(built_of(json.dumps(data)))
        op = library.torch_op(**{names[1]: torch.ones(20, 8)})
        compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
        for call in (op, compiled):
            assert (call(torch.ones(3, 8)) == 8).all()
        parameters = [argument.name for argument in op._operator.overload._schema.arguments]
        assert len(set(parameters)) == len(parameters), parameters


@pytest.mark.usefixtures("way")
def test_an_operator_computes_with_the_buffers_that_it_has() -> None:
    library = dietcode.load(built("rows"))
    x, w = torch.ones(4, 37), torch.ones(100, 37)
    other = library.torch_op(W=2 * w)

    def functional(op: Any) -> Any:
        return torch.func.functional_call(op, dict(other.state_dict()), (x,))

    def loaded(op: Any) -> Any:
        op.load_state_dict(other.state_dict(), assign=True)
        return op(x)

    def set_anew(op: Any) -> Any:
        op.bound_W = other.bound_W
        return op(x)

    def moved(op: Any) -> Any:
        op.bound_W.data = other.bound_W.data
        return op(x)

    def written(op: Any) -> Any:
        op.bound_W.mul_(2)
        return op(x)

    for change in (functional, loaded, set_anew, moved, written):
        op = library.torch_op(W=w)
        for _ in range(2):
            assert (op(x) == 37).all()
        assert (change(op) == 74).all(), change.__name__
        assert (op(x) == (37 if change is functional else 74)).all()
        fast = op._eager
        assert (op(x) == (37 if change is functional else 74)).all()
        assert op._eager is fast, "bound once more, and kept"
        weights = {"bound_W": other.bound_W.clone().requires_grad_()}
        fresh = library.torch_op(W=w)
        with pytest.raises(TensorError, match="W: requires grad"):
            torch.func.functional_call(fresh, weights, (x,))


@pytest.mark.long
def test_compiled_for_all_shapes_at_once(nets: tuple[Any, Any]) -> None:
    tuned, plain = nets
    compiled = torch.compile(tuned, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for rows in (4, 1, 9, 700):
            x = torch.randn(rows, 37)
            assert close(compiled(x), plain(x)) and close(tuned(x), plain(x))
        with pytest.raises(Exception, match=r"M: outside 1…700"):
            compiled(torch.randn(701, 37))
        with pytest.raises(ShapeError, match="M: 701; allowed: 1…700"):
            tuned(torch.randn(701, 37))
        x = torch.randn(37, 6).T  # not contiguous
        assert close(tuned(x), plain(x)) and close(compiled(x), plain(x))
        x = torch.randn(2, 3, 37)
        assert close(tuned(x), plain(x))
    with torch.inference_mode():
        assert close(tuned(x), plain(x))


def run_by_another_process(run: str, x: Any, expected: Any, folder: Path, more: str = "") -> None:
    """Compare what an expression gives there, which is called with all rows and with one; then run more."""
    torch.save((x, expected.detach()), folder / "expected.pt")
    text = (
        f"import torch, dietcode; dietcode.load({str(built_of(LONG_ROWS))!r}).torch_op_name()\n"
        f"x, y = torch.load({str(folder / 'expected.pt')!r})\n"
        f"run = {run}\n"
        "for n in (4, 1):\n"
        "    assert torch.allclose(run(x[:n]), y[:n], rtol=1e-4, atol=1e-5)\n"
    )
    subprocess.run([sys.executable, "-c", text + more], cwd=ROOT, check=True, timeout=120)


@pytest.mark.thorough
def test_exported_saved_and_run_by_another_process(nets: tuple[Any, Any], tmp_path: Path) -> None:
    tuned, plain = nets
    rows = torch.export.Dim("rows", min=1, max=700)
    x = torch.randn(4, 37)
    exported = torch.export.export(tuned, (x,), dynamic_shapes={"x": {0: rows}})
    torch.export.save(exported, tmp_path / "net.pt2")
    run = f"torch.export.load({str(tmp_path / 'net.pt2')!r}).module()"
    run_by_another_process(run, x, plain(x), tmp_path)
    with pytest.raises(Exception, match=r"(?s)Constraints violated.*700"):
        torch.export.export(tuned, (x,), dynamic_shapes={"x": {0: torch.export.Dim("rows", max=7000)}})


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # PyTorch, of itself
def test_compiled_ahead_of_time_and_run_by_another_process(nets: tuple[Any, Any], tmp_path: Path) -> None:
    """By AOTInductor, which finds the operator by its name."""
    tuned, plain = nets
    x, package = torch.randn(4, 37), str(tmp_path / "net.pt2")
    with torch.no_grad():
        exported = torch.export.export(
            tuned, (x,), dynamic_shapes={"x": {0: torch.export.Dim("rows", min=1, max=700)}}
        )
    torch._inductor.aoti_compile_and_package(exported, package_path=package)
    refused = (
        "try: run(torch.zeros(701, 37))\n"
        "except Exception as error:\n"
        "    is_told = torch.__version__ >= '2.11'  # 2.10 prints it alone\n"
        "    assert not is_told or 'M: 701; allowed: 1…700' in str(error)\n"
        "else: raise AssertionError\n"
    )
    # PyTorch 2.10 looks for its module `codecache` without importing it.
    run = f"__import__('torch._inductor.codecache')._inductor.aoti_load_package({package!r})"
    run_by_another_process(run, x, plain(x), tmp_path, refused)


def test_gradients_are_refused_and_not_forged(library: Any, nets: tuple[Any, Any]) -> None:
    tuned, _ = nets
    x = torch.randn(3, 37)
    assert not tuned.first(x).requires_grad
    for call in (tuned.first, torch.compile(tuned.first, backend="aot_eager")):
        with pytest.raises(
            Exception, match=r"X: requires grad, and dietcode::long_rows.* records no gradient"
        ):
            call(x.clone().requires_grad_())
    with torch.no_grad():
        assert close(tuned.first(x.clone().requires_grad_()), tuned.first(x))


def test_hooks_are_called_and_compile_is_heeded(library: Any) -> None:
    """The short way of a call knows none of them, and so goes the long one where there are some."""
    from torch.nn.modules.module import register_module_forward_hook

    op, x, seen = library.torch_op(W=np.ones((100, 37), np.float32)), torch.ones(4, 37), []
    for _ in range(2):
        assert (op(x) == 37).all()

    def note(*given: Any) -> None:
        seen.append(len(given))

    registering: list[Any] = [
        op.register_forward_hook,
        op.register_forward_pre_hook,
        register_module_forward_hook,
    ]
    for register in registering:
        seen.clear()
        handle = register(note)
        assert (op(x) == 37).all() and len(seen) == 1, register
        handle.remove()
        assert (op(x) == 37).all() and len(seen) == 1, register
    for other in (copy.deepcopy(op), copy.copy(op)):
        other.register_forward_hook(note)
        seen.clear()
        assert (other(x) == 37).all() and len(seen) == 1
    graphs: list[Any] = []

    def backend(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    op.compile(backend=backend)
    for _ in range(2):
        assert (op(x) == 37).all() and len(graphs) == 1


def test_what_looks_at_operators_sees_this_one(nets: tuple[Any, Any]) -> None:
    tuned, plain = nets
    x = torch.randn(3, 37)
    with torch.no_grad():
        with pytest.warns(DeprecationWarning, match="jit.trace"):
            traced = torch.jit.trace(tuned, x)
        x = torch.randn(8, 37)
        assert close(traced(x), plain(x))
        with pytest.raises(TensorError, match=r"under torch\.vmap; pass the whole batch as rows"):
            torch.vmap(tuned)(torch.randn(2, 3, 37))
        from torch.utils._python_dispatch import TorchDispatchMode

        seen = []

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(op))
                return op(*args, **(kwargs or {}))

        with Watch():
            tuned(x)
        assert any(name.startswith("dietcode.long_rows") for name in seen)
        with pytest.raises(TensorError, match=r"X: inside torch\.vmap"):
            torch.vmap(lambda row: dietcode.load(built("varying"))(X=row, W=torch.zeros(50, 21)))(
                torch.zeros(2, 3, 21)
            )


def test_wrong_calls_of_an_operator(library: Any) -> None:
    w = torch.zeros(100, 37)
    for bound, message in (
        ({}, "torch_op: W: a constant, and missing; allowed: X, W"),
        ({"W": w, "V": w}, "torch_op: V: unknown; allowed: X, W"),
        ({"W": w.double()}, "W: dtype torch.float64"),
    ):
        with pytest.raises(TensorError, match=message):
            library.torch_op(**bound)
    op = library.torch_op(W=w)
    x = torch.zeros(2, 37)
    for tensors, named in (((), {}), ((x, x), {}), ((x,), {"X": x}), ((x,), {"out": x})):
        with pytest.raises(TensorError, match=r"given .* allowed: X"):
            op(*tensors, **named)
    for value in (None, [1.0], x.numpy().astype(np.float64)):
        with pytest.raises(TensorError, match=r"X: (NoneType|list|ndarray); allowed: a torch tensor$"):
            op(value)
    with pytest.raises(TensorError, match=r"X: dtype torch\.float64; allowed: float32"):
        op(x.double())
    with pytest.raises(ShapeError, match="X: extent 36"):
        op(x[:, :36])
    assert (
        np.shares_memory(op.bound_W.numpy(), library.torch_op(W=library.pack(W=w)).bound_W.numpy()) is False
    )


def test_wrong_values_of_a_shape_variable() -> None:
    op = dietcode.load(built("keyword")).torch_op(W=torch.zeros(32, 16))
    assert op(torch.zeros(12, 16), A=np.int64(2)).shape == (12, 32)
    for value in (2.0, True, None, torch.zeros(90, 90)):
        with pytest.raises(ShapeError, match=r"^A: .*; allowed: an integer$"):
            op(torch.zeros(12, 16), A=value)


def test_without_pytorch_it_says_what_to_install() -> None:
    text = (
        "import sys; sys.modules['torch'] = None\n"
        f"import dietcode; library = dietcode.load({str(built_of(LONG_ROWS))!r})\n"
        "for ask in (library.torch_op, lambda: dietcode.nn):\n"
        "    try: ask()\n"
        "    except ImportError as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all(
        line.startswith("MissingExtraError an operator of PyTorch needs torch: pip") for line in lines
    )
