"""The GPU benchmark without a GPU; its kernels run on the CPU, launched by its own calls of the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from needs import needs_nvrtc, of_extra

from benchmarks.gpu.pack import write_pack
from dietcode.lean import without_torch
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.target.cuda import CudaTarget
from dietcode.workload.parse import spec_from_data

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
sys.path.extend([str(GPU), str(ROOT / "tests" / "search_space"), str(ROOT / "tests" / "library")])

pytestmark = needs_nvrtc
SPEC = """
name: small-scores
op: {einsum: "bmk,bnk->bmn", epilogue: [{scale: 0.125}]}
tensors: {Q: {dims: bmk, dtype: float32}, K: {dims: bnk, dtype: float32}}
output: {name: S, dtype: float32}
accumulate: float32
shape_vars: {T: {min: 1, max: 40}}
dims: {b: 3, m: T, n: T, k: 64}
target: {kind: llvm}
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Modules choose and pack, without PyTorch, which TVM would import; scripts are for a GPU's machine."""
    environment = without_torch(os.environ) if arguments[0] == "-m" else None
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def half_packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense layer in half precision."""
    folder = tmp_path_factory.mktemp("half")
    data = yaml.safe_load((ROOT / "examples" / "bert-dense-fp16.yaml").read_text())
    spec, target = spec_from_data(data | {"dims": {"m": "3*T", "n": 40, "k": 48}}), CudaTarget("sm_90a")
    tiles = [
        (CudaMicroKernel(16, 64, 4, 4, 16, stages=2, splits=2), "hardware"),
        (CudaMicroKernel(64, 32, 64, 32, 32, stages=3, unit="wgmma"), "hardware"),
        (CudaMicroKernel(64, 40, 64, 40, 32, stages=3, unit="tma"), "hardware"),
        (CudaMicroKernel(64, 40, 64, 40, 32, stages=2, unit="tma", tails="global"), "hardware"),
    ]
    assert list(write_pack(folder, spec, target, tiles)) == []
    return folder


@pytest.fixture(scope="module")
def packed(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    command = ("-m", "benchmarks.gpu.pack", spec, "--arch", "sm_90a", "--most", 17, "--samples", 0)
    done = run(*command, "-o", folder)
    assert done.returncode == 0, done.stderr
    assert "17 micro-kernels for sm_90a" in done.stdout
    return folder


@pytest.mark.thorough
@pytest.mark.long
def test_what_was_packed_can_be_run(packed: Path) -> None:
    from lines import read_facts

    facts = read_facts(packed)
    assert facts["dtypes"] == {"Q": "float32", "K": "float32", "S": "float32"}
    assert facts["commit"] is None or len(facts["commit"].removesuffix("+")) == 40
    assert len(facts["instances"]) == 40
    assert {facts["instances"][i]["shape_vars"]["T"] for i in facts["points"]} >= {1, 40}
    tails = {c["tile"]["tails"] for c in facts["candidates"]}
    assert tails == {"local", "partition", "global", "checked"}
    assert len({c["name"] for c in facts["candidates"]}) == 17
    blocks = [row["grids"][0][0] for row in facts["candidates"][0]["grids"]["sweep"]]
    assert blocks == sorted(blocks)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("script", ["measure.py", "compare.py"])
def test_without_a_gpu_it_says_so(script: str, packed: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run(GPU / script, packed, "-o", tmp_path / "out.json")
    assert done.returncode == 1
    assert done.stderr == "no GPU benchmark: PyTorch finds no GPU on this machine\n"
    assert not (tmp_path / "out.json").exists()


@pytest.mark.long
def test_an_unknown_architecture_is_one_line(spec: Path, tmp_path: Path) -> None:
    done = run("-m", "benchmarks.gpu.pack", spec, "--arch", "sm_91", "-o", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("target.arch: given 'sm_91'; allowed: sm_75")
    assert done.stderr.count("\n") == 1


@pytest.mark.thorough
def test_packed_kernels_compute(packed: Path, tmp_path: Path) -> None:
    """At three instances: grids, arguments and workspace as the GPU's machine will give them."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    from emulated_driver import load_driver, register
    from emulation import compiled
    from packed import MicroKernel, Pack, Tensors, ready

    pack = Pack(packed)
    candidates = sorted(pack.facts["candidates"], key=lambda c: -len(c["functions"]))[:6]
    assert [len(c["functions"]) for c in candidates] == [4, 4, 4, 4, 3, 2]  # padded, split, of two classes
    for candidate in candidates:
        kernels = compiled(pack.file(f"{candidate['file']}.cu").decode())
        register(load_driver(), kernels, [function["symbol"] for function in candidate["functions"]])
        kernel = MicroKernel(ready(pack), pack, candidate)
        assert kernel.facts["registers"] == 40  # as the emulated driver has it
        for index in (0, 22, 23):  # the last of multiples of four
            tensors = Tensors(torch, pack, pack.facts["instances"][index], copies=2, device="cpu")
            call = kernel.bind(torch, tensors, "instances")
            tensors.sets[0][pack.facts["output"]].fill_(float("nan"))
            before = tensors.sets[1][pack.facts["output"]].clone()
            call(0)
            assert tensors.error_of(torch, pack) < 1e-5, candidate["name"]
            assert torch.equal(tensors.sets[1][pack.facts["output"]], before)


@pytest.mark.thorough
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_packed_kernels_compute_in_half_precision(number: int, half_packed: Path) -> None:
    """Inputs are rounded before anything is compared; how far it may be off depends on the output's dtype."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    from baselines import cublas
    from emulated_driver import load_driver, register
    from emulation import compiled
    from packed import MicroKernel, Pack, Tensors, ready

    pack = Pack(half_packed)
    candidate = pack.facts["candidates"][number]
    kernels = compiled(pack.file(f"{candidate['file']}.cu").decode())
    register(load_driver(), kernels, [function["symbol"] for function in candidate["functions"]])
    tensors = Tensors(torch, pack, pack.facts["instances"][6], copies=2, device="cpu")
    output = tensors.sets[0]["Y"]
    assert {value.dtype for value in tensors.sets[0].values()} == {torch.float16}
    MicroKernel(ready(pack), pack, candidate).bind(torch, tensors, "instances")(0)
    assert tensors.error_of(torch, pack) < pack.max_error
    assert 2.0**-11 < pack.max_error < 1e-3
    assert tensors.error_of(torch, pack, cublas(torch, pack)(tensors.sets[0])) < pack.max_error
    output[0, 0] += 1
    assert tensors.error_of(torch, pack) > pack.max_error


def test_the_summary_is_against_the_best_at_each_instance() -> None:
    from compare import summary

    rows = [
        {"measured_gflops": 100.0, "predicted_gflops": 80.0, "max_rel_error": 1e-6,
         "others": {"cublas": 50.0, "torch.compile": 200.0, "triton": 900.0}},
        {"measured_gflops": 100.0, "predicted_gflops": 100.0, "max_rel_error": 2e-6,
         "others": {"cublas": 50.0, "torch.compile": None}},
    ]  # fmt: skip
    facts = summary(rows)
    assert facts["geometric_mean"] == pytest.approx((100 / 900 * 2.0) ** 0.5)
    assert facts["worst"] == pytest.approx(100 / 900)
    assert facts["against"] == {"triton": 1, "cublas": 1}
    assert facts["mean_prediction_gap"] == pytest.approx(0.1)  # predicted over measured
    assert facts["max_rel_error"] == 2e-6
    assert summary([])["geometric_mean"] is None


CHILD = """
import os, sys, time
print("at 3", flush=True)
print("at 4", flush=True)
{}
"""


@pytest.mark.parametrize(
    ("end", "expected"),
    [("", (0, 4)), ("os._exit(75)", (75, 4)), ("os.abort()", (-6, 4)), ("time.sleep(60)", (None, 4))],
)
def test_a_child_that_does_not_come_back_is_ended(end: str, expected: tuple[int | None, int]) -> None:
    from watching import watch

    assert watch([sys.executable, "-c", CHILD.format(end)], hang_secs=1.5) == expected


def test_a_step_ends_with_what_it_began(tmp_path: Path) -> None:
    from sequence import run as run_step

    place = tmp_path / "pid"
    begin = f"import subprocess as s; open({str(place)!r}, 'w').write(str(s.Popen(['sleep', '60']).pid))"
    for end, expected in (("", 0), ("; import time; time.sleep(60)", None)):
        assert run_step([sys.executable, "-c", begin + end], 1.5) == expected
        state = Path(f"/proc/{place.read_text()}/stat")
        for _ in range(100):  # until it was reaped, by another
            if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.05)
        else:
            pytest.fail("it goes on")


@pytest.mark.thorough
def test_what_is_not_written_is_no_result(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN is more than what is allowed; a baseline that cannot be made costs itself."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    import compare
    import measure
    from cpu_as_gpu import pretend
    from packed import Pack

    class Idle:
        def __init__(self, _driver: Any, _pack: Any, candidate: Any) -> None:
            self.candidate = candidate

        def bind(self, *_: Any) -> Any:
            return lambda turn: None

    pretending, pack = pretend(torch), Pack(packed)
    monkeypatch.setattr(measure, "MicroKernel", Idle)
    line = measure.measure_one(pretending, None, pack, pack.facts["candidates"][0], {})
    assert line["error"].startswith("off by nan at")
    assert not line["points"] and not line["secs"]
    name = pack.facts["candidates"][0]["name"]
    assert measure.check(pretending, None, pack, 1) == [f"{name}: wrong, off by nan"]
    pack.facts["assignment"] = [0] * len(pack.facts["instances"])
    kernels = [Idle(None, pack, candidate) for candidate in pack.facts["candidates"]]
    with pytest.raises(compare.WrongResultError, match="off by nan at"):
        compare.compare_one(pretending, pack, kernels, {}, 0)

    def make(*_: Any) -> Any:
        raise OSError("no such module")

    monkeypatch.setitem(compare._OTHERS, "triton", make)
    others, missing = compare.make_others(torch, pack, ["torch.compile"])
    assert list(others) == ["cublas"]
    assert missing == {"triton": "no such module"}
    path = tmp_path / "records.jsonl"
    errors = {"first": None, "second": "off by nan at {'T': 1}", "third": "off by nan at {'T': 1}"}
    lines = [{"kind": "micro_kernel", "name": name, "error": error} for name, error in errors.items()]
    lines.append(lines[-1] | {"error": None})  # it was read again
    path.write_text("".join(json.dumps(line) + "\n" for line in [{"format": "…"}, *lines]))
    assert measure.told(path) == (2, "2 micro-kernels measured, 0 sweep; 1 failed: off by nan")
