"""What is packed next, by the records of a first pack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.evidence.gpu import point_key, read_device
from benchmarks.gpu.next_round import next_candidates
from benchmarks.gpu.pack import spec_for
from benchmarks.gpu.sequence import earlier_records
from dietcode.backends.cuda.backend import CudaBackend
from dietcode.cost_model.cuda.model import count
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.candidates import starting_candidates
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import hardware_seeds
from dietcode.search_space.problem import extents_of
from dietcode.target.cuda import CudaTarget
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import largest_instance
from dietcode.workload.spec import Spec

KEPT = Path(__file__).parents[2] / "benchmarks" / "records" / "nvidia-h100-80gb-hbm3"
EXAMPLES = Path(__file__).parents[2] / "examples"
DEVICE = {
    "id": "0", "name": "made up", "num_sms": 132, "synthetic": True,
    "target": {"kind": "cuda", "arch": "sm_90a"},
}  # fmt: skip
MOST = 24


def spec_of(name: str) -> Spec:
    return spec_for(EXAMPLES / f"{name}.yaml", "sm_90a")


def space_of(spec: Spec) -> list[Candidate]:
    problem, target = CudaBackend().task(spec).problem, CudaTarget("sm_90a")
    limits, largest = CudaLimits.of(target), extents_of(spec, largest_instance(spec))
    return starting_candidates(problem, hardware_seeds(problem, limits), limits, largest)


def secs_of(spec: Spec, kernel: CudaMicroKernel, points: list[dict[str, int]]) -> list[float]:
    """Of a device on which copies in bulk are twice as fast as all else."""
    problem = CudaBackend().task(spec).problem
    given = {k: np.asarray([point[k] for point in points]) for k in points[0]}
    counts = count(problem, kernel, 132, given)
    rate = 8e14 if kernel.unit == "tma" else 4e14
    secs: list[float] = (
        3e-6 + np.ceil(counts.waves) * 132 * counts.padded_flops / counts.blocks / rate
    ).tolist()
    return secs


def share_of_tma(candidates: list[Candidate]) -> float:
    return float(np.mean([candidate.micro_kernel.unit == "tma" for candidate in candidates]))


@pytest.fixture(name="first")
def make_first(tmp_path: Path) -> tuple[Spec, Path, list[Candidate]]:
    """Records of the first candidates of float16 dense."""
    spec = spec_of("bert-dense-fp16")
    space, path = space_of(spec), tmp_path / "records.jsonl"
    points = [{"m": 16 * t, "n": 2304, "k": 768} for t in (1, 4, 18, 49, 90, 128)]
    lines: list[dict[str, Any]] = [
        {"format": "dietcode-records/1", "workload": workload_digest(spec), "device": DEVICE}
    ]
    blocks = list(range(9, 529, 9))
    lines.append(
        {
            "kind": "calibration", "micro_kernel": space[0].micro_kernel.name, "num_blocks": blocks,
            "secs": [3e-6 + 8e-6 * -(-n // 132) for n in blocks], "wave_blocks": 132,
        }
    )  # fmt: skip
    for candidate in space[:20]:
        kernel = candidate.micro_kernel
        facts = {
            "registers": 128,
            "shared_bytes": 1 << 15,
            "stack_bytes": 0,
            "code_bytes": 1 << 14,
            "classes": 1,
        }
        lines.append(
            {
                "kind": "micro_kernel", **kernel.to_json(), "name": kernel.name, "provenance": "hardware",
                "points": points, "secs": secs_of(spec, kernel, points), "facts": facts, "error": None,
            }
        )  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return spec, path, space


def test_the_best_are_packed_again_and_then_what_promises_most(
    first: tuple[Spec, Path, list[Candidate]],
) -> None:
    spec, path, space = first
    found = next_candidates(spec, [(spec, path)], space, MOST)
    names = [candidate.micro_kernel.name for candidate in found]
    assert len(names) == len(set(names)) == MOST
    measured = {candidate.micro_kernel.name for candidate in space[:20]}
    num_kept = sum(name in measured for name in names)
    assert 0 < num_kept < MOST and set(names[:num_kept]) <= measured, "finalists come first"
    new = names[num_kept:]
    assert new != [c.micro_kernel.name for c in space if c.micro_kernel.name not in measured][: len(new)]
    left = [c for c in space if c.micro_kernel.name not in measured]
    assert share_of_tma(found[num_kept:]) > 1.5 * share_of_tma(left), "which it was seen to be fast with"


def test_other_workloads_of_elements_as_wide_learn_from_it(first: tuple[Spec, Path, list[Candidate]]) -> None:
    _, path, _ = first
    earlier = [(spec_of("bert-dense-fp16"), path)]
    spec = spec_of("bert-dense-bf16")
    space = space_of(spec)
    found = next_candidates(spec, earlier, space, MOST)
    assert len(found) == MOST and share_of_tma(found) > 1.5 * share_of_tma(space)
    for name in ("bert-dense", "attention-fp16"):
        other = spec_of(name)
        space = [Candidate(CudaMicroKernel(16, 64, 4, 4, 16), "hardware")]
        assert next_candidates(other, earlier, space, MOST) == space


def test_earlier_records_are_of_a_run_or_kept(tmp_path: Path) -> None:
    kept = dict(earlier_records(KEPT))
    assert kept["bert-dense-fp16"] == KEPT / "bert-dense-fp16.jsonl" and len(kept) > 4
    (tmp_path / "bert-dense").mkdir()
    (tmp_path / "bert-dense" / "records.jsonl").write_text("")
    assert earlier_records(tmp_path) == [("bert-dense", tmp_path / "bert-dense" / "records.jsonl")]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="no records in it"):
        earlier_records(tmp_path / "empty")


def test_records_of_all_kinds_may_be_given_at_once() -> None:
    """What one run on a GPU left, convolutions and blocks too: those that are alike are learnt from."""
    earlier = [(spec_of(path.stem), path) for path in sorted(KEPT.glob("*.jsonl"))]
    assert len(earlier) > 4
    spec = spec_of("bert-dense-fp16")
    names = [c.micro_kernel.name for c in next_candidates(spec, earlier, space_of(spec), MOST)]
    assert len(names) == MOST and "192x192-t64x192-k64-s4-wgmma" in names, "the fastest at the largest T"


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("bert-dense-fp16", 0.04),
        ("bert-dense", 0.06),
        ("resnet50-conv3x3-nhwc-fp16", 0.03),
        ("bert-bmm-qk-fp16", 0.12),
    ],
)
def test_the_law_predicts_what_an_h100_took(name: str, most: float) -> None:
    """At shapes that its fit has not seen; its terms were chosen with these readings known."""
    measured = read_device(KEPT).workloads[name]
    compared = json.loads((KEPT / f"{name}.json").read_text())["instances"]
    models = {model.micro_kernel.name: model for model in measured.fitted.models}
    gaps = []
    for row in compared:
        extents = {k: int(v) for k, v in extents_of(measured.spec, row["shape_vars"]).items()}
        if point_key({k: extents[k] for k in measured.problem.extents}) in measured.measured_points:
            continue
        given = {k: np.asarray([extents[k]]) for k in measured.problem.extents}
        found = models[row["micro_kernel"]].predict(measured.problem, given).throughput[0] / 1e9
        gaps.append(abs(found / row["measured_gflops"] - 1.0))
    assert len(gaps) > 10 and np.mean(gaps) < most
