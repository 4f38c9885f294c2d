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
from dietcode.library.cuda.build import CudaParts, cuda_library_files
from dietcode.measure import gpu_children
from dietcode.measure.gpu import find_gpu
from dietcode.measure.gpu_children import LocalGpu
from dietcode.runtime.manifest import MANIFEST
from dietcode.search_space.cuda.lowering import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.problem import problem_from_spec
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.tuner import verification
from dietcode.tuner.cuda_trials import request_of
from dietcode.tuner.events import Event
from dietcode.tuner.verification import verify
from dietcode.workload.instances import make_instances
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
PROBLEM = device_problem(problem_from_spec(SPEC))
WRONG = {
    "in one category": (1, "return;", "'M': 6"),
    "at large extents": (0, "if (extent_m > 80 && blockIdx.x == 3) return;", f"'M': {ROWS}"),
    "in the last ragged rows": (0, "if (extent_m > 8) extent_m -= extent_m % 8;", "'M': [0-9]+"),
}


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    from emulated_gpu import emulated_gpu

    with emulated_gpu() as patch:
        patch.setattr(gpu_children, "_L2_BYTES", 1 << 16)
        yield patch


@pytest.fixture(scope="module")
def children(patch: pytest.MonkeyPatch) -> Iterator[LocalGpu]:
    gpu = find_gpu(TARGET)
    assert gpu is not None
    made = LocalGpu(gpu)
    yield made
    made.close()


def built() -> Mapping[str, bytes]:
    return cuda_library_files(CudaParts(SPEC, (TARGET,), PROBLEM, TILES, RULE, {}, {}))


def verified(files: Mapping[str, bytes], children: LocalGpu) -> list[Event]:
    heard: list[Event] = []
    facts = {"workspace_bytes": int(json.loads(files[MANIFEST])["workspace_bytes"])}
    verify(SPEC, PROBLEM, make_instances(SPEC), files, facts, children.run, 60.0, heard.append)
    return heard


def test_a_right_library_is_right(children: LocalGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    files = built()
    for flops in (1e12, 3e5):
        monkeypatch.setattr(verification, "_MAX_FLOPS", flops)
        (event,) = verified(files, children)
        assert event.message == "right on 11 instances against float64"


@pytest.mark.parametrize("where", WRONG)
def test_a_library_that_is_wrong_somewhere_is_refused(
    where: str, children: LocalGpu, monkeypatch: pytest.MonkeyPatch
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


def test_a_candidate_is_checked_at_all_its_points(children: LocalGpu) -> None:
    """Also where all of float64 would take too long."""
    points = [{"m": rows, "n": 20, "k": 24} for rows in (1, 8, ROWS)]
    text = cuda_text(PROBLEM, TILES[:1], TARGET)
    wrong = spoiled_text(text, TILES[0].symbol, WRONG["at large extents"][1])

    def measured(text: str) -> dict[str, Any] | str:
        cubin = compile_cubin(text, TARGET)
        return children.run(
            "measure_kernel", request_of(PROBLEM, TILES[0], cubin, points, max_checked_flops=1e4), 60.0
        )

    found = measured(text)
    assert isinstance(found, dict) and len(found["secs"]) == 3, found
    assert f"wrong result: error nan of the output's scale at {{'m': {ROWS}" in str(measured(wrong))
