"""MetaSchedule's kernels of single shapes: proposed and compiled here, run by the emulated driver."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from needs import needs_emulated_driver, needs_nvrtc, of_extra

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
sys.path.extend([str(GPU), str(ROOT / "tests" / "search_space"), str(ROOT / "tests" / "library")])
NUM_TRIALS = 3
# What orders copies that are none of cp.async: the emulator's are done at once.
_WAITS = re.compile(r'asm volatile\("cp\.async\.(?:wait_group \d+|commit_group);"[^)]*\);')


def emulate_alone(pack: Path) -> None:
    """Have the emulated driver run the trials of a pack."""
    from emulated_gpu import emulate

    with zipfile.ZipFile(pack / "alone.zip") as files:
        for name in (name for name in files.namelist() if name.endswith(".cu")):
            text = _WAITS.sub("", files.read(name).decode())
            assert "cp.async" not in text
            emulate(files.read(name.replace(".cu", ".cubin")), text)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A pack of a dense layer with trials of two shapes, and the environment of a machine that has it."""
    pytest.importorskip("torch", reason=of_extra("bench"))
    from emulated_driver import driver_folder, load_driver
    from emulated_gpu import emulate
    from packed import Pack
    from test_gpu_run import SPECS, TILES

    from benchmarks.gpu.pack import pack_alone, write_pack
    from dietcode.target.cuda import CudaTarget

    load_driver()
    folder, target = tmp_path_factory.mktemp("alone") / "pack", CudaTarget("sm_90a")
    assert list(write_pack(folder, SPECS["two"], target, [(TILES[0], "hardware")])) == []
    pack_alone(folder, SPECS["two"], target, 2, NUM_TRIALS)
    pack = Pack(folder)
    for candidate in pack.facts["candidates"]:
        emulate(pack.file(f"{candidate['file']}.cubin"), pack.file(f"{candidate['file']}.cu").decode())
    emulate_alone(folder)
    return folder, os.environ | {
        "PYTHONPATH": str(Path(__file__).parent / "borrowed"),
        "LD_LIBRARY_PATH": f"{driver_folder()}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "OMP_NUM_THREADS": "1",
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.mark.thorough
@pytest.mark.long  # a kill is in test_gpu_run.py, these trials are in test_gpu_limits.py
@needs_nvrtc
@needs_emulated_driver
def test_trials_are_timed_once_and_the_best_again_through_a_kill(
    packed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    from alone import FINAL_READINGS, best_of_shapes, facts_of

    folder, environment = packed
    facts = facts_of(folder)
    assert facts is not None and [one["trials"] for one in facts["shapes"]] == [NUM_TRIALS] * 2
    turns = [trial["index"] for trial in facts["trials"]]
    assert turns[:2] != turns[:1] * 2 and turns == turns[:2] * NUM_TRIALS  # as many of each, before any place
    output = tmp_path / "alone.jsonl"
    given = [sys.executable, str(GPU / "alone.py"), str(folder), "-o", str(output), "--secs", "3000"]
    halting = environment | {"BORROWED_LAUNCHES": "18"}  # 5 or so for each reading
    process = subprocess.Popen(given, env=halting, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(lines_of(output)) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    before = lines_of(output)
    assert 3 <= len(before) < 1 + 2 * NUM_TRIALS
    done = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = lines_of(output)
    assert after[: len(before)] == before
    assert {line["error"] for line in after[1:]} == {None}  # each is right
    once = sorted(line["number"] for line in after[1:] if line["readings"] == 1)
    assert once == list(range(2 * NUM_TRIALS))  # one reading each, once
    finals = sorted(line["number"] for line in after[1:] if line["readings"] == FINAL_READINGS)
    assert finals == once  # three of each shape are all
    best = best_of_shapes(facts, after)
    assert [one["num_trials"] for one in best] == [NUM_TRIALS] * 2
    for one in best:
        assert one["secs"] == min(
            line["secs"]
            for line in after[1:]
            if line["index"] == one["index"] and line["readings"] == FINAL_READINGS
        )
    other = [*given[:-1], "1"]
    output.write_text(output.read_text().replace("a CPU in the place", "another in the place", 1))
    refused = subprocess.run(other, env=environment, capture_output=True, text=True, check=False)
    assert refused.stderr == f"{output}: of another pack or GPU; give another -o, or remove it\n"


@pytest.mark.thorough
@needs_nvrtc
def test_a_wrong_trial_is_no_baseline(packed: tuple[Path, dict[str, str]]) -> None:
    """One that writes nothing, or something else, is on record as wrong and never the best."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    from alone import best_of_shapes, facts_of, time_one
    from cpu_as_gpu import pretend
    from packed import Pack

    facts, pack = facts_of(packed[0]), Pack(packed[0])
    assert facts is not None
    trial = facts["trials"][0]

    class Idle:
        def bind(self, tensors: Any) -> Any:
            return lambda stream: None

    line = time_one(pretend(torch), Idle, pack, trial, 1, {})
    assert line["error"] == "off by nan" and line["secs"] is None
    assert best_of_shapes(facts, [line]) == []


def test_parameters_come_in_the_order_of_the_text() -> None:
    from benchmarks.gpu.shape_alone import arguments_of

    head = 'extern "C" __global__ void __launch_bounds__(32) main_kernel'
    given = "half* __restrict__ W_ptr, half* __restrict__ X_ptr, half* __restrict__ Y_ptr"
    assert arguments_of(f"{head}({given});\n{head}({given}) {{", "main_kernel") == ["W", "X", "Y"]


def test_finals_come_when_time_is_short() -> None:
    from alone import FINAL_READINGS, NUM_FINALS, next_trial

    facts = {"trials": [{"number": n, "index": n % 2} for n in range(10)]}
    known: dict[int, dict[str, Any]] = {}
    for number in range(8):
        assert next_trial(facts, known, True) == (number, 1)
        known[number] = {"readings": 1, "secs": 10.0 - number, "error": "wrong" if number == 7 else None}
    order = []
    while (found := next_trial(facts, known, False)) is not None and found[1] > 1:
        order.append(found[0])
        known[found[0]] = known[found[0]] | {"readings": FINAL_READINGS}
    assert order == [6, 4, 2, 5, 3, 1]  # the fastest of each shape, 7 being wrong
    assert len(order) == 2 * NUM_FINALS
    assert next_trial(facts, known, False) == (8, 1)  # where time is left after all


@needs_nvrtc
@pytest.mark.long
@pytest.mark.parametrize("einsum", ["mk,nk->mn", "bmk,bnk->bmn"])
def test_tensor_cores_of_one_shape_are_machine_code(einsum: str, tmp_path: Path) -> None:
    pytest.importorskip("nvidia.cu13.include.crt", reason="needs nvidia-cuda-crt")
    from disassembly import disassembled

    from benchmarks.gpu.shape_alone import trials_of
    from dietcode.search_space.problem import problem_from_spec
    from dietcode.target.cuda import CudaTarget
    from dietcode.workload.parse import spec_from_data

    x, w = einsum.partition("->")[0].split(",")
    spec = spec_from_data(
        {
            "name": "one",
            "op": {"einsum": einsum},
            "dims": {k: n for k, n in {"b": 2, "m": "64*T", "n": 64, "k": 64}.items() if k in einsum},
            "shape_vars": {"T": {"min": 1, "max": 2}},
            "tensors": {"X": {"dims": x, "dtype": "float16"}, "W": {"dims": w, "dtype": "float16"}},
            "output": {"name": "Y", "dtype": "float16"},
            "target": {"kind": "cuda", "arch": "sm_90a"},
        }
    )
    extents = {"b": 2, "m": 64, "n": 64, "k": 64}
    kernels, _ = trials_of(problem_from_spec(spec), extents, CudaTarget("sm_90a"), 1, 0)
    ((kernel, cubin),) = kernels
    assert kernel.threads[0] == 32 and kernel.shared_bytes > 0
    assert "HMMA" in disassembled(cubin, tmp_path)
