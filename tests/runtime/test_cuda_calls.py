"""A library for CUDA as callers see it: what it refuses, and what it gives its machine code, on the CPU."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc, of_extra

from dietcode.dispatcher.rule import fit_rule
from dietcode.errors import DietCodeError, ShapeError, TargetError, TensorError
from dietcode.library.cuda.build import cuda_library_files
from dietcode.library.parts import Parts
from dietcode.runtime.cuda_library import CudaLibrary
from dietcode.runtime.loading import load
from dietcode.runtime.manifest import MANIFEST, write_folder
from dietcode.search_space.cuda.forms import device_problem, functions_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.task import Task
from dietcode.target.cuda import CudaTarget
from dietcode.workload.parse import spec_from_data

ROOT = Path(__file__).parents[1]
sys.path.extend([str(ROOT / "search_space"), str(ROOT / "library")])

torch = pytest.importorskip("torch", reason=of_extra("bench"))
pytestmark = needs_nvrtc
TILES = (CudaMicroKernel(8, 16, 2, 2, 4, splits=2), CudaMicroKernel(16, 16, 4, 2, 8, stages=2))
SPEC = {
    "name": "small-dense",
    "op": {"einsum": "mk,nk->mn", "epilogue": ["bias"]},
    "tensors": {
        "X": {"dims": "mk", "dtype": "float32"},
        "W": {"dims": "nk", "dtype": "float32", "constant": True},
    },
    "output": {"name": "Y", "dtype": "float32"},
    "accumulate": "float32",
    "shape_vars": {"T": {"min": 1, "max": 4}},
    "dims": {"m": "5*T", "n": 20, "k": 24},
    "target": {"kind": "cuda", "arch": "sm_90"},
}


class OnGpu(torch.Tensor):  # type: ignore[misc]
    """A tensor of the CPU that says it is on a GPU, as the emulated driver does."""

    is_cuda = property(lambda _: True)


HALF = SPEC | {
    "tensors": {name: facts | {"dtype": "float16"} for name, facts in SPEC["tensors"].items()},
    "output": {"name": "Y", "dtype": "float16"},
}


def build(data: dict[str, Any], path: Path, tiles: tuple[CudaMicroKernel, ...] = TILES) -> Path:
    """A library with its first category for T = 1, the split one, another for the rest; registered."""
    from emulated_driver import load_driver, register
    from emulation import compiled

    spec = spec_from_data(data)
    task = Task.of(spec, device_problem)
    problem = task.problem
    rule = fit_rule(("T",), [[1], [2], [3], [4]], [0, 1, 1, 1], [[2, 1], [1, 2], [1, 2], [1, 2]], [0.25] * 4)
    target = CudaTarget("sm_90")
    files = cuda_library_files(Parts(task, target, tiles, rule, {}, {}))
    write_folder(path, files)
    names = [function.symbol for tile in tiles for function in functions_of(problem, tile)]
    register(load_driver(), compiled(cuda_text(problem, tiles, target)), names)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SPEC, tmp_path_factory.mktemp("library") / "library")


@pytest.fixture(scope="module")
def library(folder: Path) -> CudaLibrary:
    found = load(folder)
    assert isinstance(found, CudaLibrary)
    return found


@pytest.fixture
def emulated(library: CudaLibrary, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    return let_through(library, monkeypatch)


def let_through(library: CudaLibrary, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Let calls through to the machine code; what each that ran got besides the tensors is written down."""
    from device_tensors import on_device

    seen: list[tuple[Any, ...]] = []
    run, workspace_bytes = library._run, library._workspace_bytes

    def given(arguments: tuple[Any, ...]) -> list[Any]:
        return [on_device(a.numpy()) if isinstance(a, OnGpu) else a for a in arguments]

    def through(*arguments: Any) -> None:
        run(*given(arguments))
        seen.append(arguments[len(library._order) + len(library._outputs) :])

    monkeypatch.setattr(library, "_run", through)
    monkeypatch.setattr(library, "_workspace_bytes", lambda *arguments: workspace_bytes(*given(arguments)))
    return seen


def inputs(rows: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(rows)
    shapes = {"X": (rows, 24), "W": (20, 24), "bias": (20,)}
    return {n: torch.randn(s, generator=generator).as_subclass(OnGpu) for n, s in shapes.items()}


@pytest.mark.parametrize("value", [1, 2, 4])
def test_calls_compute(value: int, library: CudaLibrary, emulated: list[tuple[Any, ...]]) -> None:
    given = inputs(5 * value)
    given["W"] = library.pack(W=given["W"])
    output = library(**given)
    expected = given["X"].double() @ given["W"].double().T + given["bias"].double()
    assert (output - expected).abs().max() < 1e-4
    ((workspace, variable),) = emulated
    assert variable == value
    assert bool(workspace) is (library.select(T=value) == 0)
    if workspace:  # two parts of the reduction
        ((*_, num_bytes),) = (known for known in library._calls.values() if known[0] == (value,))
        assert num_bytes == 2 * 4 * output.numel()


def test_shapes_that_were_seen_are_checked_all_the_same(
    library: CudaLibrary, emulated: list[tuple[Any, ...]]
) -> None:
    """Of a shape that comes again only what can be wrong is looked at, by the machine code's host part."""
    given = inputs(15)
    first = library(**given)
    assert torch.equal(library(**given), first)
    for name, wrong, message in (
        ("X", given["X"].double(), "X: dtype torch.float64"),
        ("X", given["X"].clone().requires_grad_(), "X: requires grad"),
        ("X", torch._neg_view(given["X"]), "X: a negated view"),
        ("out", torch._neg_view(first.clone()), "out: a negated view; it is written"),
        ("bias", torch.zeros(20), "bias: on cpu"),
        ("bias", None, "bias: missing"),
        ("Z", 1, "Z: unknown argument"),
        ("out", given["X"].flatten()[:300].view(15, 20), "out: overlaps an input"),
        ("out", first.clone().requires_grad_(), "out: requires grad"),
        ("out", first.half(), "out: dtype torch.float16"),
    ):
        with pytest.raises(TensorError, match=message):
            library(**(given | {name: wrong}))
    assert len(emulated) == 2


def test_an_output_is_taken(library: CudaLibrary, emulated: list[tuple[Any, ...]]) -> None:
    given, out = inputs(10), torch.full((10, 20), float("nan")).as_subclass(OnGpu)
    assert library(**given, out=out) is out
    assert torch.equal(out, library(**given))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("X", lambda x: torch.zeros(10, 24), "X: on cpu; this library runs on cuda"),
        ("X", lambda x: x.numpy(), "X: ndarray; allowed: a torch tensor on cuda"),
        ("X", lambda x: x.double(), "X: dtype torch.float64; allowed: float32"),
        ("X", lambda x: x.T.contiguous().T, "X: not contiguous"),
        ("X", lambda x: x.clone().requires_grad_(), "X: requires grad"),
        ("X", lambda x: torch.cat([x.flatten(), x.flatten()])[1:241].view(10, 24), "no multiple of 16 bytes"),
        ("W", lambda x: x.to("meta"), "W: on meta, but X is on cpu; pass tensors of one device"),
        ("bias", lambda x: None, "bias: missing"),
        ("Z", lambda x: 1, "Z: unknown argument"),
    ],
)
def test_wrong_tensors_are_refused(
    name: str, change: Callable[[Any], Any], message: str, library: CudaLibrary, emulated: list[Any]
) -> None:
    given = inputs(10)
    with pytest.raises(TensorError, match=message):
        library(**(given | {name: change(given.get(name))}))
    assert not emulated


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (lambda given: torch.zeros(9, 20).as_subclass(OnGpu), ShapeError, r"out: shape \[9, 20\]"),
        (lambda given: given["X"].flatten()[:200].view(10, 20), TensorError, "out: overlaps an input"),
        (
            lambda given: torch.zeros(10, 20),
            TensorError,
            "out: on cpu.*it is written",
        ),
    ],
)
def test_wrong_outputs_are_refused(
    out: Callable[[Any], Any], error: type[Exception], message: str, library: CudaLibrary, emulated: list[Any]
) -> None:
    given = inputs(10)
    with pytest.raises(error, match=message):
        library(**given, out=out(given))
    assert not emulated


@pytest.mark.thorough
def test_no_value_of_a_manifest_gives_more_than_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that its publisher wrote: it is refused, or calls compute, or are refused in one line."""
    own = tmp_path / "library"
    shutil.copytree(folder, own)
    given, found, ran = json.loads((own / MANIFEST).read_bytes()), [], 0
    for path in _paths(given):
        if path[0] in ("workload", "files"):  # which calls do not read
            continue
        for odd in (None, 0, 3, 1 << 70, "", "x\x1b[31m\n", []):
            altered = json.loads(json.dumps(given))
            inner = altered
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = odd
            (own / MANIFEST).write_text(json.dumps(altered))
            try:
                library = load(own)
                assert isinstance(library, CudaLibrary)
                let_through(library, monkeypatch)
                for rows in (5, 10):
                    library(**inputs(rows))
                ran += 1
            except DietCodeError as error:
                if not (str(error).isprintable() and len(str(error)) < 1000):
                    found.append((path, odd, str(error)))
            except Exception as error:
                found.append((path, odd, repr(error)))
    assert not found, found[:20]
    assert ran > 50


def _paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(leaf for key, value in inner for leaf in _paths(value, (*path, key)))][not path :]


def test_shapes_outside_the_range_are_refused(library: CudaLibrary) -> None:
    with pytest.raises(ShapeError, match="T: 5; allowed: 1…4"):
        library(**inputs(25))
    with pytest.raises(ShapeError, match="extent 7 of axis 0"):
        library(**inputs(7))


def test_a_device_that_is_not_there_is_an_error(library: CudaLibrary) -> None:
    with pytest.raises(TargetError, match="CUDA_ERROR_INVALID_DEVICE"):
        library.prepare(7)


def test_only_its_own_tensors_are_packed(library: CudaLibrary) -> None:
    with pytest.raises(TensorError, match="pack: given V"):
        library.pack(V=torch.zeros(1))


def test_half_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the epilogue are of the operands' dtype too; the sums of a split reduction are float32.

    The last here: its kernels take the places of the others' in the driver, by their names.
    """
    library = load(build(HALF, tmp_path / "half"))
    assert isinstance(library, CudaLibrary)
    let_through(library, monkeypatch)
    for rows in (5, 10):
        given = {name: value.half() for name, value in inputs(rows).items()}
        output = library(**given)
        assert output.dtype is torch.float16
        expected = given["X"].double() @ given["W"].double().T + given["bias"].double()
        assert (output - expected).abs().max() < 2.0**-11 * expected.abs().max() + 1e-4
    assert library.manifest["workspace_bytes"] == 2 * 4 * 20 * 20
    for name, value in given.items():
        with pytest.raises(TensorError, match=rf"{name}: dtype torch\.float32; allowed: float16"):
            library(**(given | {name: value.float().as_subclass(OnGpu)}))
    with pytest.raises(TensorError, match=r"out: dtype torch\.float32; allowed: float16"):
        library(**given, out=torch.zeros(10, 20).as_subclass(OnGpu))


@pytest.mark.thorough
def test_a_block_gives_several_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One new, one a table whose rows it writes; what it is given for them is checked."""
    data = SPEC | {
        "name": "small-block",
        "op": {
            "block": {
                "version": 1,
                "graph": {
                    "P": {"einsum": ["X", "W"], "dims": "mn"},
                    "h": {"relu": "P"},
                    "Y": {"softmax": "P", "axis": "n"},
                },
                "outputs": [{"h": {"into": "H", "at": "to"}}, "Y"],
            }
        },
        "tensors": {
            "X": {"dims": "mk", "dtype": "float32"},
            "W": {"dims": "nk", "dtype": "float32", "constant": True},
            "H": {"dims": "tn", "dtype": "float32"},
            "to": {"dims": "m", "dtype": "int32"},
        },
        "dims": {"m": "5*T", "n": 20, "k": 24, "t": 7},
    }
    data = {key: value for key, value in data.items() if key not in {"output", "accumulate"}}
    tiles = (CudaMicroKernel(8, 32, 2, 1, 16), CudaMicroKernel(16, 16, 2, 2, 8))
    library = load(build(data, tmp_path / "library", tiles))
    assert isinstance(library, CudaLibrary)
    seen = let_through(library, monkeypatch)
    generator = torch.Generator().manual_seed(0)
    x, w, table = (
        torch.randn(s, generator=generator).as_subclass(OnGpu) for s in ((5, 24), (20, 24), (7, 20))
    )
    at = torch.tensor([6, -1, 0, 3, 7], dtype=torch.int32).as_subclass(OnGpu)
    product, before = x.double() @ w.double().T, table.clone()
    h, y = library(X=x, W=w, H=table, to=at)
    assert h is table
    for row, place in enumerate(at.tolist()):
        if 0 <= place < 7:
            before[place] = product[row].relu().float()
    assert (table - before).abs().max() < 1e-4
    assert (y - product.softmax(1)).abs().max() < 1e-5
    out = torch.empty(5, 20).as_subclass(OnGpu)
    assert library(X=x, W=w, H=table, to=at, out=(table, out))[1] is out
    assert torch.equal(out, y)
    assert [bool(workspace) for workspace, _ in seen] == [True, True], "the product is set aside"
    for wrong, said in (
        ((before, out), "out: another tensor for h; allowed: H"),
        (out, "out: OnGpu; allowed: a tuple of h, Y"),
        ((table, x), "out: shape|Y: shape"),
        ((table, table[:5]), "out: overlaps an input"),
    ):
        with pytest.raises((TensorError, ShapeError), match=said):
            library(X=x, W=w, H=table, to=at, out=wrong)
