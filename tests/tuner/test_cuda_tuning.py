"""From a spec to a library on a GPU that is emulated: measured, resumed, selected, built, verified.

What it measures means nothing, and every library made here says that it is synthetic.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc

from dietcode.backends.cuda import domain as domain_module
from dietcode.backends.cuda import measuring as measuring_module
from dietcode.backends.cuda.backend import SYNTHETIC, CudaBackend
from dietcode.errors import RecordsError, TargetError, TuningError
from dietcode.measure import gpu_device
from dietcode.measure.gpu import Gpu, find_gpu
from dietcode.measure.gpu_worker import GpuWorker
from dietcode.measure.local import LocalMachine
from dietcode.measure.records import Records, read_records, write_records
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import NoSeedSearch
from dietcode.measure.store import FileKeeper, export_file, import_file
from dietcode.runtime.manifest import read_manifest
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import CudaSeed
from dietcode.target import nvrtc
from dietcode.target.cuda import CudaTarget
from dietcode.tuner import reselect as reselect_module
from dietcode.tuner.events import Event, OnEvent, silent
from dietcode.tuner.measuring import explore
from dietcode.tuner.report import records_of
from dietcode.tuner.result import TuneResult, write_library
from dietcode.tuner.search import Search
from dietcode.tuner.tune import make_library, tune
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec

sys.path.append(str(Path(__file__).parents[1] / "library"))

pytestmark = needs_nvrtc
SEEDS = [
    CudaSeed(CudaMicroKernel(16, 32, 4, 4, 8, splits=2), "hardware"),
    CudaSeed(CudaMicroKernel(8, 32, 4, 2, 8), "hardware"),
]
ARCHS = ("sm_90a",)


def spec_of(trials: int = 4, arch: str = "sm_90a", **objective: Any) -> Spec:
    return spec_from_data(
        {
            "name": "small-dense",
            "op": {"einsum": "mk,nk->mn", "epilogue": ["bias"]},
            "tensors": {
                "X": {"dims": "mk", "dtype": "float32"},
                "W": {"dims": "nk", "dtype": "float32", "constant": True},
            },
            "output": {"name": "Y", "dtype": "float32"},
            "accumulate": "float32",
            "shape_vars": {"T": {"min": 1, "max": 6}},
            "dims": {"m": "5*T", "n": 20, "k": 24},
            "target": {"kind": "cuda", "arch": arch},
            "budget": {"trials": trials, "seconds": 100.0},
            "objective": objective,
        }
    )


class Run:
    """One tuning run, and what was heard of it."""

    def __init__(self, **options: Any) -> None:
        self.events: list[Event] = []
        spec = options.pop("spec", None) or spec_of(8)
        self.result: TuneResult = make_library(
            spec, archs=ARCHS, allow_synthetic=True, on_event=self.events.append, **options
        )

    def said(self, stage: str) -> list[str]:
        return [event.message for event in self.events if event.stage == stage]


def measure(spec: Spec, *, force: bool = False, children: Any = None, on_event: OnEvent = silent) -> Records:
    """Measure what the cache lacks, and build nothing."""
    backend, engine = CudaBackend(), LocalMachine()
    task, device = backend.task(spec), engine.resolve(spec.target)
    deadline = time.monotonic() + spec.budget.seconds
    with engine.children(device, lambda _: None) as own:
        found = explore(
            task, backend, device, FileKeeper(), children or own, deadline, on_event, Search(), force
        )
    return found[0]


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    from emulated_gpu import emulated_gpu

    with emulated_gpu() as patch:
        patch.setattr(domain_module, "hardware_seeds", lambda *_: SEEDS)
        patch.setattr(gpu_device, "_L2_BYTES", 1 << 20)
        yield patch


@pytest.fixture(scope="module")
def runs(patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run that goes on from one that might measure one micro-kernel; and their cache."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as own:
        own.setenv("DIETCODE_CACHE", str(cache))
        first = measure(spec_of(1))
        assert list(first.measurements) == [SEEDS[0].micro_kernel]
        return Run(), cache


@pytest.fixture
def kept(runs: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of `runs`, in use."""
    monkeypatch.setenv("DIETCODE_CACHE", str(runs[1]))
    return runs[1]


class Answers:
    """Children that measure nothing: the first micro-kernels get these answers, the others times."""

    slot, seeds = "answers", NoSeedSearch("none here")

    def __init__(self, *answers: str) -> None:
        self._answers = iter(answers)

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        for request in requests:
            yield GpuWorker(0, 1).build(request)

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        return CheckResult(0.0)

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        num_points = len(request.points)
        facts = {"registers": 40, "stack_bytes": 0, "resident_blocks": 8}
        error = None if Path(request.path).stem == "sweep" else next(self._answers, None)
        if error is not None:
            return TimeResult.failed(error)
        return TimeResult(tuple(1e-5 * (i + 1) for i in range(num_points)), facts)

    def close(self) -> None:
        pass


def gpu_here() -> Gpu:
    found = find_gpu(CudaTarget("sm_90a"))
    assert found is not None
    return found


def records_file(cache: Path) -> Path:
    (path,) = (cache / "records").rglob("*.jsonl")
    return path


def test_a_gpu_here_is_measured_on(runs: tuple[Run, Path]) -> None:
    second, cache = runs
    assert second.result.measured == 7
    assert not second.said("calibrate")  # κ is known by then
    records = read_records(records_file(cache))
    assert records.is_synthetic
    assert records.device == second.result.device
    assert next(iter(records.measurements)) == SEEDS[0].micro_kernel
    assert {seed.micro_kernel for seed in SEEDS} < set(records.measurements)
    assert {"hardware", "expansion"} <= {m.provenance for m in records.measurements.values()}
    assert any(decision["expansions"] for decision in records.rounds), "five rows are no whole tiles"
    assert all(m.error is None and len(m.secs) == len(m.points) for m in records.measurements.values())
    assert all(m.pruned or len(m.points) >= 5 for m in records.measurements.values())
    waves = {point["m"] for m in records.measurements.values() for point in m.points}
    assert max(waves) > 5 * 6, "grown to full waves of the device"
    assert [decision["stop"] for decision in records.rounds] == [None, "trials", None, "trials"]


def test_what_is_built_is_run_on_the_gpu_first(runs: tuple[Run, Path]) -> None:
    second, _ = runs
    assert second.said("verify") == ["right on 6 instances against float64"]
    assert second.result.report["standing"] == SYNTHETIC
    assert second.result.report["calibration"]["kappa"] == pytest.approx(1.0, abs=1e-3)
    assert second.result.report["rounds"][-1]["message"].endswith("the trials of the budget are used up")


@pytest.mark.thorough
def test_leaders_are_timed_in_every_alignment_class_and_all_of_them_are_verified(
    patch: pytest.MonkeyPatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reduction of any length: multiples of four are read by vectors."""
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path))
    tensors = {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "kn", "dtype": "float32"}}
    data = spec_of(2).to_json() | {"name": "values", "op": {"einsum": "mk,kn->mn"}, "tensors": tensors}
    data |= {"shape_vars": {"T": {"min": 1, "max": 23}}, "dims": {"m": 40, "n": 20, "k": "T"}}
    run = Run(spec=spec_from_data(data))
    manifest = json.loads(run.result.files["manifest.json"])
    for classes in manifest["alignment_classes"]:
        assert [(own["multiple"], own["dims"]) for own in classes] == [(4, "k"), (1, "")]
        assert [own["alignment_bytes"]["X"] for own in classes] == [16, 4]
    chosen = [row for row in run.result.report["micro_kernels"] if row["category"] is not None]
    for row in chosen:
        assert row["facts"]["classes"] == 2
        assert len({point["k"] for point in row["points"] if point["k"] % 4 == 0}) >= 2
        assert len({point["k"] for point in row["points"] if point["k"] % 4}) >= 2
    (said,) = run.said("verify")
    assert re.fullmatch(r"right on \d+ instances against float64", said)


def test_nothing_is_measured_twice(kept: Path, runs: tuple[Run, Path]) -> None:
    heard: list[Event] = []
    before = records_file(kept).read_bytes()
    records = measure(spec_of(8), on_event=heard.append)
    assert [event.message for event in heard] == [
        "8 micro-kernels from the records; nothing is left to measure"
    ]
    assert records.device == runs[0].result.device
    assert records_file(kept).read_bytes() == before


def test_force_measures_again(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "cache" / records_file(kept).relative_to(kept)
    copy.parent.mkdir(parents=True)
    copy.write_bytes(records_file(kept).read_bytes())
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "cache"))
    heard = list[Event]()
    records = measure(spec_of(1), force=True, children=Answers(), on_event=heard.append)
    assert list(records.measurements) == [SEEDS[0].micro_kernel]
    assert [event.stage for event in heard].count("calibrate") == 2
    assert read_records(copy) == records


def test_records_travel(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_driver: None) -> None:
    file = tmp_path / "records.jsonl.zst"
    known = export_file(spec_of(), file)  # the only GPU that measured
    assert read_records(file) == known
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(RecordsError, match="measured nothing of small-dense on this device yet"):
        export_file(spec_of(), tmp_path / "more.jsonl")
    assert import_file(file) == (known, 8)
    assert import_file(file) == (known, 0)


def test_of_several_devices_one_has_to_be_named(
    kept: Path, tmp_path: Path, no_driver: None, inside: Callable[..., Any]
) -> None:
    path = records_file(kept)
    known = read_records(path)
    other = Records(known.workload, known.device | {"id": "f" * 16, "name": "another"})
    write_records(tmp_path / "other.jsonl", other)
    import_file(tmp_path / "other.jsonl")
    try:
        spec, file = tmp_path / "spec.json", tmp_path / "r.jsonl"
        spec.write_text(json.dumps(spec_of().to_json()))
        refused = inside("records", "export", file, "--spec", spec)
        assert refused.returncode == 1
        assert re.search(r"several devices: .*another .*; say which by --device", refused.stderr)
        done = inside("records", "export", file, "--spec", spec, "--device", known.device["id"])
        assert done.returncode == 0, done.stderr
        assert read_records(file) == known
    finally:
        (kept / "records" / ("f" * 16) / path.name).unlink()


@pytest.mark.thorough
def test_a_library_is_selected_again_without_measuring(
    runs: tuple[Run, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_driver: None
) -> None:
    library, other = tmp_path / "library", tmp_path / "other"
    write_library(runs[0].result, library)
    kept, known = records_of(runs[0].result.report), read_records(records_file(runs[1]))
    for tile, measurement in known.measurements.items():  # what only a log of the run tells
        known.measurements[tile] = replace(measurement, build_secs=0.0)
    assert kept == known
    with pytest.raises(RecordsError, match="synthetic"):
        reselect_module.reselect(library, {"max_kernels": 1}, other)
    assert not other.exists()
    allowed = partial(make_library, allow_synthetic=True)
    monkeypatch.setattr(reselect_module, "make_library", allowed)
    heard: list[Event] = []
    result = reselect_module.reselect(library, {"max_kernels": 1}, other, on_event=heard.append)
    assert result.report["standing"] == SYNTHETIC
    said = [event.message for event in heard if event.stage == "verify"]
    assert said == ["not run here: there is no GPU of sm_90a here"]
    assert result.measured == 0
    assert len(result.report["selection"]["micro_kernels"]) == 1
    assert read_manifest(other)["requires"]["cuda"]["archs"] == list(ARCHS)


def test_a_library_that_is_wrong_is_not_written(
    kept: Path, patch: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from emulated_gpu import DOES_NOTHING, compile_c, place_of

    compile_right = nvrtc._compile

    def compile_wrong(text: str, arch: str, form: str, reproducible: bool, *more: float) -> bytes:
        # What the library holds is compiled anew, other than what was measured.
        code = compile_right(f"// another\n{text}", arch, form, reproducible, *more)
        if form == "CUBIN":
            names = [name for name in text.split() if name.startswith("micro_kernel_")]
            bodies = "".join(f"void call_{name.partition('(')[0]}() {{}}\n" for name in dict.fromkeys(names))
            place_of(code).unlink()
            compile_c(DOES_NOTHING + bodies, place_of(code))
        return code

    monkeypatch.setattr(nvrtc, "_compile", compile_wrong)
    with pytest.raises(TuningError, match=r"the finished library fails at {'T': 6}: .*wrong result"):
        Run(known=read_records(records_file(kept)))


def test_without_a_gpu_nothing_is_measured(tmp_path: Path, no_driver: None) -> None:
    with pytest.raises(
        TargetError, match=r"no GPU of sm_90a here \(found: none\); run this on a machine with one"
    ):
        tune(spec_of(), tmp_path / "library")
    assert not (tmp_path / "library").exists()


def test_a_gpu_of_another_architecture_will_not_do(
    tmp_path: Path, patch: pytest.MonkeyPatch, runs: tuple[Run, Path]
) -> None:
    with pytest.raises(
        TargetError, match=r"no GPU of sm_80 here \(found: emulated.* \(sm_90\), .*\(sm_86\)\)"
    ):
        tune(spec_of(arch="sm_80"), tmp_path / "library")


def test_what_no_device_measures_is_refused_before_it_is_measured(
    tmp_path: Path, patch: pytest.MonkeyPatch, inside: Callable[..., Any]
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_of().to_json()))
    done = inside("tune", path, "-o", tmp_path / "library")
    assert done.returncode == 1
    assert "the records are synthetic (emulated: computes on the CPU)" in done.stderr
    assert not (tmp_path / "library").exists()
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.thorough
def test_what_fails_is_on_record_and_costs_itself(
    patch: pytest.MonkeyPatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash, one that the GPU stops, and those that work."""
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "cache"))
    errors = ["ChildProcessError: Subprocess terminated", "GpuError: CUDA_ERROR_LAUNCH_FAILED (719)"]
    records = measure(spec_of(4), children=Answers(*errors))
    assert [m.error for m in records.measurements.values() if m.error] == errors
    assert sum(m.usable for m in records.measurements.values()) == 2
    assert len(records.rounds[0]["failed"]) == 2
    assert read_records(records_file(tmp_path / "cache")) == records
    with pytest.raises(TuningError, match="no micro-kernel worked; the first said: ChildProcessError"):
        measure(spec_of(2), force=True, children=Answers(*errors))


@pytest.mark.long
def test_a_part_of_the_budget_is_metaschedules(
    patch: pytest.MonkeyPatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it proposes is measured as any other, and known from the records when it is asked for again."""
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring_module, "_SHARE_OF_TRIALS", 1)  # all of it
    spec = spec_from_data(spec_of(8).to_json() | {"dims": {"m": "16*T", "n": 128, "k": 64}})
    heard: list[Event] = []
    records = measure(spec, children=Answers(), on_event=heard.append)
    found = [m for m in records.measurements.values() if m.provenance == "metaschedule"]
    assert 4 <= len(found) <= 8  # some proposals are one micro-kernel
    longest = [(max(zip((p["m"] for p in m.points), m.secs, strict=True))[1], m) for m in found if m.usable]
    best = min(longest, key=lambda one: (one[0], one[1].micro_kernel.order))[1].micro_kernel
    assert records.seed is not None and records.seed["micro_kernel"] == best.to_json()
    said = [event.message for event in heard if event.stage == "seed"]
    assert said[0] == "MetaSchedule on the largest instance"
    assert said[-1].startswith(f"T0 = {best.rows}x{best.columns}, ")


def test_a_gpu_is_known_as_the_benchmark_knows_it() -> None:
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "gpu"))
    from types import SimpleNamespace

    from measure import device_facts

    gpu = Gpu(0, "NVIDIA H200", 132, 90, 50 << 20, "0000:1b:00.0", CudaTarget("sm_90a"))
    properties = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda _: properties))
    assert gpu.record == device_facts(torch, "sm_90a")
    assert gpu.id == gpu.record["id"]
    with pytest.raises(TargetError, match=r"NVIDIA H200 \(sm_120\); allowed: sm_75"):
        _ = replace(gpu, capability=120, target=None).record
