"""Constants of libraries for GPUs in a layout of the library's own: what is packed, what is refused."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc, of_extra

from dietcode.errors import LibraryError, ShapeError, TensorError
from dietcode.runtime.cuda_library import CudaLibrary
from dietcode.runtime.loading import load
from dietcode.runtime.manifest import MANIFEST
from dietcode.search_space.cuda.classes import vector_widths
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.packing import permutations
from dietcode.search_space.problem import problem_from_spec
from dietcode.workload.parse import spec_from_data

sys.path.append(str(Path(__file__).parent))
torch = pytest.importorskip("torch", reason=of_extra("bench"))
from test_cuda_calls import OnGpu, build, let_through  # noqa: E402

TILES = (CudaMicroKernel(8, 16, 2, 2, 4, splits=2), CudaMicroKernel(16, 16, 4, 2, 8, stages=2))


def conv(layout: str = "OIHW", groups: int = 2, **more: Any) -> dict[str, Any]:
    """A grouped convolution of NHWC data; 8 channels of the data in each group."""
    letters = layout.lower().translate(str.maketrans("hwi", "rsi" if groups > 1 else "rsc"))
    return {
        "name": "small-conv",
        "op": {"conv2d": {"padding": 1, "groups": groups, "data_layout": "NHWC", "kernel_layout": layout}},
        "tensors": {
            "X": {"dims": "nhwc", "dtype": "float32"},
            "W": {"dims": letters, "dtype": "float32", "constant": True},
        },
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {"T": {"min": 1, "max": 4}},
        "dims": {"n": "T", "h": 3, "w": 4, "c": 8 * groups, "o": 6, "r": 3, "s": 3}
        | ({"i": 8} if groups > 1 else {}),
        "target": {"kind": "cuda", "arch": "sm_90"},
        **more,
    }


def both(data: dict[str, Any]) -> tuple[Any, Any]:
    """The problem as callers see it, and as code for GPUs does."""
    problem = problem_from_spec(spec_from_data(data))
    return problem, device_problem(problem)


@pytest.mark.parametrize(
    ("layout", "groups", "packed", "axes"),
    [
        ("OIHW", 1, "ocrs -> orsc", [[0], [2], [3], [1]]),
        ("HWIO", 1, "rsco -> orsc", [[3], [0], [1], [2]]),
        ("OHWI", 1, None, None),  # lies so already
    ],
)
def test_what_is_read_in_wider_vectors_is_packed(layout: str, groups: int, packed: Any, axes: Any) -> None:
    problem, own = both(conv(layout, groups))
    known = permutations(problem, own)
    assert (known["W"].to_json()["axes"] if known else None) == axes
    assert (known["W"].layout if known else None) == packed
    assert device_problem(own) == own
    tile = CudaMicroKernel(16, 16, 4, 4, 8)
    assert vector_widths(own, tile)["W"] == 4
    if packed == "ocrs -> orsc":
        assert vector_widths(replace(problem, column_operand_constant=False), tile)["W"] == 1


def test_what_varies_or_would_be_no_wider_is_not_packed() -> None:
    data = conv()
    data["tensors"]["W"].pop("constant")
    assert not permutations(*both(data))
    assert not permutations(*both(conv(dims=conv()["dims"] | {"i": 3, "c": 6})))  # 3 channels: no vector


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(conv(), tmp_path_factory.mktemp("conv") / "library", TILES)


@pytest.fixture
def library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> CudaLibrary:
    found = load(folder)
    assert isinstance(found, CudaLibrary)
    let_through(found, monkeypatch)
    return found


def given(batch: int) -> tuple[Any, Any, Any]:
    """Data, weights as PyTorch has them, and the result in float64."""
    generator = torch.Generator().manual_seed(batch)
    x, w = (torch.randn(s, generator=generator) for s in ((batch, 3, 4, 16), (6, 8, 3, 3)))
    data = x.double().permute(0, 3, 1, 2)
    expected = torch.nn.functional.conv2d(data, w.double(), padding=1, groups=2).permute(0, 2, 3, 1)
    return x.as_subclass(OnGpu), w.as_subclass(OnGpu), expected


@pytest.mark.thorough
@needs_nvrtc
def test_calls_take_what_was_packed(library: CudaLibrary) -> None:
    for batch in (1, 3, 3):
        x, w, expected = given(batch)
        packed = library.pack(W=w)
        assert packed.shape == (6, 8, 3, 3)
        assert packed.data.shape == (6, 3, 3, 8)
        assert packed.layout == "guirs -> gursi"
        assert (library(X=x, W=packed) - expected).abs().max() < 1e-4
        again = pickle.loads(pickle.dumps(packed))
        assert (again.name, again.shape, again.layout) == (packed.name, packed.shape, packed.layout)
        assert torch.equal(again.data, packed.data)
        assert copy.deepcopy(packed) is packed
        assert repr(packed).startswith("Packed(W[6, 8, 3, 3] torch.float32")
        bound = library.bind(W=w)
        assert (bound(x) - expected).abs().max() < 1e-4


@needs_nvrtc
def test_what_was_not_packed_for_it_is_refused(library: CudaLibrary) -> None:
    x, w, _ = given(2)
    packed = library.pack(W=w)
    for wrong, message in (
        (w, r"W: OnGpu; pass what lib.pack\(W=…\) returned"),
        (packed.data, "W: OnGpu; pass what"),
        (None, "W: missing; pass what"),
        (replace(packed, name="V"), "W: packed as V, guirs -> gursi"),
        (replace(packed, layout="x -> y"), "W: packed as W, x -> y; allowed: guirs -> gursi"),
        (replace(packed, data=packed.data.double()), "W: dtype torch.float64"),
        (replace(packed, data=torch.zeros(6, 3, 3, 8)), "W: on cpu"),
    ):
        with pytest.raises(TensorError, match=message):
            library(X=x, W=wrong)
    with pytest.raises(ShapeError, match="extent 7 of axis 0"):
        library.pack(W=torch.zeros(7, 8, 3, 3).as_subclass(OnGpu))
    with pytest.raises(TensorError, match="W: not contiguous"):
        library.pack(W=w.transpose(2, 3))
    odd = torch.cat([w.flatten(), w.flatten()])[1 : 1 + w.numel()].view(w.shape).as_subclass(OnGpu)
    assert library.pack(W=odd).data.data_ptr() % 16 == 0


@needs_nvrtc
def test_a_manifest_that_describes_no_permutation_is_refused(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "library"
    shutil.copytree(folder, own)
    manifest = json.loads((own / MANIFEST).read_bytes())
    for name, value in (
        ("axes", [[0, 1], [3], [4], [3]]),
        ("axes", [[0, 1], [3], [4], [5]]),
        ("outer", [None, None, None, None]),
        ("outer", [2, None, None]),
        ("outer", [0, None, None, None]),
    ):
        packed = {"W": manifest["packed"]["W"] | {name: value}}
        (own / MANIFEST).write_text(json.dumps(manifest | {"packed": packed}))
        with pytest.raises(LibraryError, match=r"packed W: axes .*allowed: each axis once"):
            load(own)
