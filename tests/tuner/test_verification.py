"""A finished library is run in every category, and one that is wrong anywhere is not written."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from needs import needs_nvrtc
from small_libraries import make_parts, spec_data
from spoiled import spoil, spoiled_text

from dietcode.backends.cpu.backend import CpuBackend
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.backends.cuda.backend import CudaBackend
from dietcode.backends.protocol import Backend
from dietcode.dispatcher.rule import Branch, Leaf, Rule
from dietcode.errors import TuningError
from dietcode.library.build import library_files
from dietcode.library.cuda import code as library_code
from dietcode.library.cuda.build import cuda_library_files
from dietcode.library.parts import Parts
from dietcode.measure import gpu_device
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.gpu import find_gpu
from dietcode.measure.gpu_worker import LaunchedKernel
from dietcode.measure.local import LocalChildren
from dietcode.measure.requests import CheckRequest
from dietcode.measure.store import FileKeeper
from dietcode.runtime.manifest import CODE
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.task import Task
from dietcode.target.cpu import device_record
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin
from dietcode.tuner import verification
from dietcode.tuner.events import Event
from dietcode.tuner.trials import Trials
from dietcode.tuner.verification import NUM_LEAST, NUM_MOST, choose_checked, verify
from dietcode.workload.parse import spec_from_data

sys.path.append(str(Path(__file__).parents[1] / "library"))

ROWS = 301
SPEC = spec_data("rows", shape_vars={"M": {"min": 1, "max": ROWS}}, dims={"m": "M", "n": 100, "k": 37})
# The second category serves two shapes alone, which eight shapes spread over all do not meet.
RULE = Rule(("M",), 2, Branch("M", 4, Leaf(0), Branch("M", 6, Leaf(1), Leaf(0))))

GPU_TARGET = CudaTarget("sm_90a")
TILES = (CudaMicroKernel(8, 16, 2, 2, 4), CudaMicroKernel(16, 16, 4, 2, 4))
GPU_ROWS = 90
GPU_TASK = Task.of(
    spec_from_data(
        {
            "name": "rows",
            "op": {"einsum": "mk,nk->mn", "epilogue": ["bias"]},
            "tensors": {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "nk", "dtype": "float32"}},
            "output": {"name": "Y", "dtype": "float32"},
            "shape_vars": {"M": {"min": 1, "max": GPU_ROWS}},
            "dims": {"m": "M", "n": 20, "k": 24},
            "target": {"kind": "cuda", "arch": GPU_TARGET.arch},
        }
    ),
    device_problem,
)


@st.composite
def problems(draw: Any) -> tuple[Any, Any, Any]:
    """Work, category and raggedness of a few hundred instances."""
    count = draw(st.integers(1, 300))
    work = draw(arrays.arrays(np.float64, count, elements=st.integers(1, 50).map(float)))
    categories = draw(arrays.arrays(np.int64, count, elements=st.integers(0, draw(st.integers(0, 150)))))
    return work, categories, draw(arrays.arrays(np.int64, count, elements=st.integers(0, 3)))


@given(problems())
def test_every_category_is_checked_at_its_ends_and_where_it_is_ragged(problem: tuple[Any, Any, Any]) -> None:
    work, categories, num_ragged = problem
    picked = choose_checked(work, categories, num_ragged)
    served = np.unique(categories)
    assert len(set(picked)) == len(picked) <= max(NUM_MOST, len(served))
    assert set(picked) <= set(range(len(work)))
    assert len(picked) >= min(NUM_LEAST, len(work), NUM_MOST)
    for category in served:
        own = np.flatnonzero(categories == category)
        at = [row for row in picked if categories[row] == category]
        assert work[at].max() == work[own].max()
        if 3 * len(served) <= NUM_MOST:
            assert work[at].min() == work[own].min()
            assert num_ragged[at].max() == num_ragged[own].max()


@pytest.fixture(scope="module")
def parts() -> Parts:
    made: Parts = dataclasses.replace(make_parts(SPEC), rule=RULE)
    return made


@pytest.fixture(scope="module")
def children() -> Iterator[LocalChildren]:
    before = dict(os.environ)
    made = LocalChildren(CpuWorker(2), num_builders=1)
    yield made
    made.close()
    os.environ.clear()
    os.environ.update(before)


@dataclasses.dataclass
class Case:
    """A library of one kind of device, and how it is spoiled.

    Attributes
    ----------
    spoiled : callable
        The library's files, wrong in one of the ways of `WRONG`.
    sampled_flops : float
        With which the larger instances are compared by a sample of their rows.
    """

    backend: Backend
    parts: Parts
    files: Mapping[str, bytes]
    children: LocalChildren
    spoiled: Callable[[str], Mapping[str, bytes]]
    sampled_flops: float

    def verified(self, files: Mapping[str, bytes]) -> list[Event]:
        found: list[Event] = []
        call = self.backend.library_call(self.parts, files)
        verify(self.parts.task, files, call, self.children, found.append)
        return found


@contextlib.contextmanager
def on_cpu(parts: Parts, children: LocalChildren, folder: Path) -> Iterator[Case]:
    files = library_files(parts)

    def spoiled(where: str) -> Mapping[str, bytes]:
        (folder / CODE).write_bytes(files[CODE])
        spoil(folder / CODE, WRONG["cpu"][where][0])
        return {**files, CODE: (folder / CODE).read_bytes()}

    yield Case(CpuBackend(), parts, files, children, spoiled, 3e6)


@contextlib.contextmanager
def on_gpu() -> Iterator[Case]:
    """On the emulated driver."""
    from emulated_gpu import emulated_gpu

    parts = Parts(GPU_TASK, GPU_TARGET, TILES, RULE, {}, {})
    with emulated_gpu() as patch:
        patch.setattr(gpu_device, "_L2_BYTES", 1 << 16)
        gpu = find_gpu(GPU_TARGET)
        assert gpu is not None
        made = LocalChildren(gpu_device.gpu_device(gpu).worker)

        def spoiled(where: str) -> Mapping[str, bytes]:
            statement, _, category = WRONG["cuda"][where]
            symbol = TILES[category].symbol
            with pytest.MonkeyPatch.context() as own:
                own.setattr(library_code, "call_apart", lambda function, *given: function(*given))
                own.setattr(
                    library_code,
                    "cuda_text",
                    lambda *given: spoiled_text(cuda_text(*given), symbol, statement),
                )
                return cuda_library_files(parts)

        yield Case(CudaBackend(), parts, cuda_library_files(parts), made, spoiled, 3e5)
        made.close()


@pytest.fixture(scope="module")
def cpu(parts: Parts, children: LocalChildren, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with on_cpu(parts, children, tmp_path_factory.mktemp("spoiled")) as case:
        yield case


@pytest.fixture(scope="module")
def cuda() -> Iterator[Case]:
    with on_gpu() as case:
        yield case


WRONG: dict[str, dict[str, tuple[str, str, int]]] = {
    "cpu": {
        "in one category": ("if (variable == 5 || variable == 6) values[0] += 1;", "'M': [56]", 1),
        "at large extents": ("if (rows > 290) values[(rows - 5) * columns] += 1;", f"'M': {ROWS}", 0),
        "in the last ragged row": ("if (rows % 3) values[rows * columns - 1] += 1;", "'M': [0-9]+", 0),
        "past the end": ("if (rows > 290) values[100 * columns] = 0.0 / 0.0;", f"'M': {ROWS}", 0),
    },
    "cuda": {
        "in one category": ("return;", "'M': 6", 1),
        "at large extents": ("if (extent_m > 80 && blockIdx.x == 3) return;", f"'M': {GPU_ROWS}", 0),
        "in the last ragged rows": ("if (extent_m > 8) extent_m -= extent_m % 8;", "'M': [0-9]+", 0),
    },
}
"""What spoils a library of each kind, the instance at which that is seen, and the category."""
KINDS = ("cpu", pytest.param("cuda", marks=needs_nvrtc))


@pytest.mark.parametrize("is_sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_right_library_is_right(
    kind: str, is_sampled: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case: Case = request.getfixturevalue(kind)
    monkeypatch.setattr(verification, "_MAX_FLOPS", case.sampled_flops if is_sampled else 1e12)
    (event,) = case.verified(case.files)
    assert (event.stage, event.message) == ("verify", "right on 11 instances against float64")


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize(
    ("kind", "where"),
    [
        pytest.param(kind, where, marks=needs_nvrtc if kind == "cuda" else ())
        for kind, ways in WRONG.items()
        for where in ways
    ],
)
def test_a_library_that_is_wrong_somewhere_is_refused(
    kind: str, where: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case: Case = request.getfixturevalue(kind)
    files, binding = case.spoiled(where), WRONG[kind][where][1]
    for flops in (1e12, case.sampled_flops):
        monkeypatch.setattr(verification, "_MAX_FLOPS", flops)
        with pytest.raises(
            TuningError, match=rf"the finished library fails at {{{binding}}}: .*wrong result"
        ):
            case.verified(files)


def test_a_candidate_that_is_wrong_at_large_extents_is_refused(
    parts: Parts, children: LocalChildren, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task, builds = parts.task, children.build

    def spoiled_builds(requests: Any) -> Any:
        for request, outcome in zip(requests, builds(requests), strict=True):
            if request.recipe.micro_kernels[0] == parts.micro_kernels[1]:
                spoil(Path(request.path), "if (rows > 200) values[(rows - 2) * columns] += 1;")
            yield outcome

    monkeypatch.setattr(children, "build", spoiled_builds)
    store = FileKeeper().open(task.digest, device_record(parts.target))
    measuring = MeasuringCpu(children, task.problem, task.variables, parts.target, tmp_path)
    measuring.measurer.min_secs = 1e-4
    batch = [Candidate(kernel, "a test") for kernel in parts.micro_kernels]
    right, wrong = Trials(task, store, measuring, None).measure(batch, lambda: False)
    assert right.error is None
    assert "wrong result: error" in str(wrong.error) and f"'m': {ROWS}" in str(wrong.error)


@needs_nvrtc
def test_a_candidate_of_a_gpu_is_checked_at_all_its_points(cuda: Case, tmp_path: Path) -> None:
    """Also where all of float64 would take too long."""
    problem = GPU_TASK.problem
    points = tuple({"m": rows, "n": 20, "k": 24} for rows in (1, 8, GPU_ROWS))
    text = cuda_text(problem, TILES[:1], GPU_TARGET)
    wrong = spoiled_text(text, TILES[0].symbol, WRONG["cuda"]["at large extents"][0])

    def checked(text: str) -> str | None:
        path = tmp_path / "candidate.cubin"
        path.write_bytes(compile_cubin(text, GPU_TARGET))
        request = CheckRequest(problem, str(path), LaunchedKernel(TILES[0]), points, max_flops=1e4)
        return cuda.children.check(request, 60.0).error

    assert checked(text) is None
    assert f"wrong result: error nan of the output's scale at {{'m': {GPU_ROWS}" in str(checked(wrong))
