"""What is run on a GPU before a library is written, or a candidate is timed; the GPU is emulated."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc
from spoiled import spoiled_text

from dietcode.dispatcher.rule import Branch, Leaf, Rule
from dietcode.errors import TuningError
from dietcode.library.cuda import code as library_code
from dietcode.library.cuda.build import cuda_library_files
from dietcode.library.parts import Parts
from dietcode.measure import gpu_device
from dietcode.measure.gpu import find_gpu
from dietcode.measure.gpu_worker import KernelCall, LibraryCall
from dietcode.measure.local import LocalChildren
from dietcode.measure.requests import CheckRequest
from dietcode.runtime.manifest import MANIFEST
from dietcode.search_space.cuda.lowering import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.task import Task
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.tuner import verification
from dietcode.tuner.events import Event
from dietcode.tuner.verification import verify
from dietcode.workload.parse import spec_from_data

sys.path.append(str(Path(__file__).parents[1] / "library"))
pytestmark = needs_nvrtc

TARGET = CudaTarget("sm_90a")
TILES = (CudaMicroKernel(8, 16, 2, 2, 4), CudaMicroKernel(16, 16, 4, 2, 4))
ROWS = 90
# The second category serves two shapes alone, which eight shapes spread over all do not meet.
RULE = Rule(("M",), 2, Branch("M", 4, Leaf(0), Branch("M", 6, Leaf(1), Leaf(0))))
SPEC = spec_from_data(
    {
        "name": "rows",
        "op": {"einsum": "mk,nk->mn", "epilogue": ["bias"]},
        "tensors": {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "nk", "dtype": "float32"}},
        "output": {"name": "Y", "dtype": "float32"},
        "shape_vars": {"M": {"min": 1, "max": ROWS}},
        "dims": {"m": "M", "n": 20, "k": 24},
        "target": {"kind": "cuda", "arch": TARGET.arch},
    }
)
TASK = Task.of(SPEC, device_problem)
PROBLEM = TASK.problem
WRONG = {
    "in one category": (1, "return;", "'M': 6"),
    "at large extents": (0, "if (extent_m > 80 && blockIdx.x == 3) return;", f"'M': {ROWS}"),
    "in the last ragged rows": (0, "if (extent_m > 8) extent_m -= extent_m % 8;", "'M': [0-9]+"),
}


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    from emulated_gpu import emulated_gpu

    with emulated_gpu() as patch:
        patch.setattr(gpu_device, "_L2_BYTES", 1 << 16)
        yield patch


@pytest.fixture(scope="module")
def children(patch: pytest.MonkeyPatch) -> Iterator[LocalChildren]:
    gpu = find_gpu(TARGET)
    assert gpu is not None
    made = LocalChildren(gpu_device.gpu_device(gpu).worker)
    yield made
    made.close()


def built() -> Mapping[str, bytes]:
    return cuda_library_files(Parts(TASK, TARGET, TILES, RULE, {}, {}))


def verified(files: Mapping[str, bytes], children: LocalChildren) -> list[Event]:
    heard: list[Event] = []
    call = LibraryCall(int(json.loads(files[MANIFEST])["workspace_bytes"]))
    verify(TASK, files, call, children, heard.append)
    return heard


def test_a_right_library_is_right(children: LocalChildren, monkeypatch: pytest.MonkeyPatch) -> None:
    files = built()
    for flops in (1e12, 3e5):
        monkeypatch.setattr(verification, "_MAX_FLOPS", flops)
        (event,) = verified(files, children)
        assert event.message == "right on 11 instances against float64"


@pytest.mark.parametrize("where", WRONG)
def test_a_library_that_is_wrong_somewhere_is_refused(
    where: str, children: LocalChildren, monkeypatch: pytest.MonkeyPatch
) -> None:
    category, statement, binding = WRONG[where]

    def text_of(*arguments: Any) -> str:
        return spoiled_text(cuda_text(*arguments), TILES[category].symbol, statement)

    monkeypatch.setattr(library_code, "cuda_text", text_of)
    files = built()
    for flops in (1e12, 3e5):
        monkeypatch.setattr(verification, "_MAX_FLOPS", flops)
        with pytest.raises(
            TuningError, match=rf"the finished library fails at {{{binding}}}: .*wrong result"
        ):
            verified(files, children)


def test_a_candidate_is_checked_at_all_its_points(children: LocalChildren, tmp_path: Path) -> None:
    """Also where all of float64 would take too long."""
    points = tuple({"m": rows, "n": 20, "k": 24} for rows in (1, 8, ROWS))
    text = cuda_text(PROBLEM, TILES[:1], TARGET)
    wrong = spoiled_text(text, TILES[0].symbol, WRONG["at large extents"][1])

    def checked(text: str) -> str | None:
        path = tmp_path / "candidate.cubin"
        path.write_bytes(compile_cubin(text, TARGET))
        request = CheckRequest(PROBLEM, str(path), KernelCall(TILES[0]), points, max_flops=1e4)
        return children.check(request, 60.0).error

    assert checked(text) is None
    assert f"wrong result: error nan of the output's scale at {{'m': {ROWS}" in str(checked(wrong))
