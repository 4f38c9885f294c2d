"""The whole of a GPU's command on a machine that was borrowed: see ``borrowed/sitecustomize.py``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from child_processes import gone
from needs import needs_emulated_driver, needs_nvrtc, of_extra

from benchmarks.gpu.pack import write_pack
from dietcode.cost_model.cuda.fitting import fit_cuda
from dietcode.measure.records import read_records
from dietcode.search_space.cuda.forms import classes_of, device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.task import Task
from dietcode.target.cuda import CudaTarget
from dietcode.tuner.assembly import choose
from dietcode.tuner.size_cap import FileSize
from dietcode.workload.parse import spec_from_data

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
sys.path.extend([str(GPU), str(ROOT / "tests" / "search_space"), str(ROOT / "tests" / "library")])
TILES = (
    CudaMicroKernel(16, 16, 4, 2, 8),
    CudaMicroKernel(32, 16, 4, 4, 8, stages=2),
    CudaMicroKernel(16, 16, 2, 4, 8, splits=2),
    CudaMicroKernel(16, 32, 4, 4, 8, tails="global"),
    CudaMicroKernel(8, 32, 2, 4, 8, tails="partition"),
)
HALF_TILES = (
    CudaMicroKernel(64, 16, 64, 16, 32, stages=2, unit="wgmma"),
    CudaMicroKernel(64, 32, 64, 32, 32, stages=2, splits=2, unit="tma"),
    CudaMicroKernel(64, 16, 64, 16, 16, stages=1, unit="tma"),
    CudaMicroKernel(64, 16, 64, 16, 32, stages=2, unit="tma", cluster_columns=2),
    CudaMicroKernel(64, 16, 64, 16, 16, stages=2, unit="tma", cluster_rows=2, persistent=True),
    CudaMicroKernel(32, 16, 16, 16, 16, unit="mma"),
)
_LAUNCHES = 330  # until a machine halts: after the sweep, before the third micro-kernel
DENSE = {
    "op": {"einsum": "mk,nk->mn", "epilogue": ["relu"]},
    "dims": {"m": "3*T", "n": 24, "k": 16},
    "shape_vars": {"T": {"min": 1, "max": 24}},
}
TWO = {
    "op": {"einsum": "mk,nk->mn"},
    "dims": {"m": "T", "n": "8*N", "k": 16},
    "shape_vars": {"T": {"min": 1, "max": 12}, "N": {"min": 1, "max": 4}},
}
HALF = {
    "op": {"einsum": "mk,nk->mn"},
    "dims": {"m": "8*T", "n": 32, "k": 48},
    "shape_vars": {"T": {"min": 1, "max": 4}},
    "tensors": {"X": {"dims": "mk", "dtype": "float16"}, "W": {"dims": "nk", "dtype": "float16"}},
    "output": {"name": "Y", "dtype": "float16"},
}


def spec_of(name: str, changes: dict[str, Any]) -> Any:
    return spec_from_data(
        {
            "name": name,
            "tensors": {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "nk", "dtype": "float32"}},
            "output": {"name": "Y", "dtype": "float32"},
            "target": {"kind": "cuda", "arch": "sm_90a"},
            "objective": {"binary_size": 0.0},
            **changes,
        }
    )


SPECS = {
    "small-dense": spec_of("small-dense", DENSE),
    "two": spec_of("two", TWO),
    "half": spec_of("half", HALF),
}
# Half precision is in test_gpu_benchmark.py, too; here each workload takes processes that import PyTorch.
NAMES = list(SPECS)[: None if os.environ.get("DIETCODE_TEST_LONG") else 2]


def tiles_of(name: str) -> tuple[CudaMicroKernel, ...]:
    return HALF_TILES if name == "half" else TILES


@pytest.fixture(scope="module")
def borrowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder of packs, and the environment of the machine that has it."""
    pytest.importorskip("torch", reason=of_extra("bench"))
    from emulated_driver import driver_folder, load_driver
    from emulated_gpu import emulate
    from packed import Pack

    load_driver()
    folder = tmp_path_factory.mktemp("borrowed")
    for name in NAMES:
        spec = SPECS[name]
        tiles = [(tile, "hardware") for tile in tiles_of(name)]
        assert list(write_pack(folder / name / "pack", spec, CudaTarget("sm_90a"), tiles)) == []
        pack = Pack(folder / name / "pack")
        for candidate in pack.facts["candidates"]:
            emulate(pack.file(f"{candidate['file']}.cubin"), pack.file(f"{candidate['file']}.cu").decode())
    yield (
        folder,
        os.environ
        | {
            "PYTHONPATH": str(Path(__file__).parent / "borrowed"),
            "LD_LIBRARY_PATH": f"{driver_folder()}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "OMP_NUM_THREADS": "1",
        },
    )


def command(folder: Path, results: Path, kept: Path, *more: str) -> list[str]:
    script = str(GPU / "sequence.py")
    given = ["--folder", str(folder), "--results", str(results), "--kept", str(kept)]
    return [sys.executable, script, "run", *NAMES, *given, *more]


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


@pytest.mark.thorough
@pytest.mark.timeout(900)  # of the command's three runs the first alone may take ten minutes
@needs_nvrtc
@needs_emulated_driver
def test_one_command_measures_chooses_and_compares_and_goes_on_where_it_was_killed(
    borrowed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = borrowed
    results, kept, archive = tmp_path / "out", tmp_path / "kept", tmp_path / "out.tar.gz"
    given = command(folder, results, kept, "--archive", str(archive), "--secs", "3000")
    records = results / "small-dense" / "records.jsonl"
    halting = environment | {"BORROWED_LAUNCHES": str(_LAUNCHES)}
    process = subprocess.Popen(given, env=halting, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while len(lines_of(records)) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    group = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in group:  # as a machine that is taken back: all at once
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    assert gone(group)
    before = lines_of(records)
    assert 3 <= len(before) < len(TILES) + 2
    assert not archive.exists()
    with records.open("a") as stream:
        stream.write('{"kind": "micro_kernel", "rows": 1')  # torn

    done = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = lines_of(records)
    assert after[: len(before)] == before
    names = [json.loads(line).get("name") for line in after[1:]]
    assert sorted(filter(None, names)) == sorted(tile.name for tile in TILES)  # each once
    for name in NAMES:
        spec = SPECS[name]
        measured = [json.loads(line) for line in lines_of(results / name / "records.jsonl")]
        assert {line["error"] for line in measured if "name" in line} == {None}
        compared = json.loads((results / name / "compared.json").read_text())
        assert compared["complete"] and not compared["wrong"]
        assert set(compared["instances"][0]["others"]) == {"cublas", "torch.compile"}
        assert "triton" in compared["missing"] or name == "small-dense"  # which has an epilogue
        assert compared["summary"]["max_rel_error"] < (
            1e-3 if name == "half" else 1e-5
        )  # an output's rounding
        assert_chosen_as_elsewhere(spec, results / name)
        assert re.search(rf"^{name}: \d+\.\d\d in geometric mean", done.stdout, re.MULTILINE)
    with tarfile.open(archive) as found:
        assert {f"{name}/compared.json" for name in NAMES} <= set(found.getnames())

    from sequence import keep

    place = keep("small-dense", results / "small-dense", kept)
    again = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    lines = [f"small-dense: is in {place}", *(f"{name}: is done" for name in NAMES[1:])]
    assert again.stdout.splitlines()[-len(lines) :] == lines
    assert lines_of(records) == after


def assert_chosen_as_elsewhere(spec: Any, results: Path) -> None:
    """From the same records ``dietcode tune --records`` chooses the same, and predicts the same."""
    task, records = Task.of(spec, device_problem), read_records(results / "records.jsonl")
    fitted = fit_cuda(task.problem, records, task.extents)
    known = {one.multiple for m in fitted.models for one in classes_of(task.problem, m.micro_kernel)[:-1]}
    choice = choose(task, fitted, FileSize(0), sorted(known, reverse=True))
    chosen = json.loads((results / "chosen" / "pack.json").read_text())
    expected = [fitted.models[index].micro_kernel.name for index in choice.selection.chosen]
    assert [candidate["name"] for candidate in chosen["candidates"]] == expected
    is_rule = chosen["assigned_by"] == "rule"
    assert is_rule == (len(spec.variables) == 1)
    assignment = choice.assignment if is_rule else choice.selection.assignment
    assert chosen["assignment"] == assignment.tolist()
    columns = [choice.selection.chosen[category] for category in assignment]
    predicted = fitted.throughput[range(len(columns)), columns] / 1e9
    assert chosen["predicted_gflops"] == pytest.approx(predicted.tolist(), rel=1e-9)


def test_the_best_at_two_points_come_next_at_all() -> None:
    from measure import NUM_BEST, best_of, next_of

    count = NUM_BEST + 20
    facts: dict[str, Any] = {
        "points": list(range(6)),
        "candidates": [{"name": f"k{n}"} for n in range(count)],
    }
    known: dict[str, dict[str, Any]] = {}
    order: list[tuple[int, bool]] = []
    while (found := next_of(known, facts, len(order) < 30)) is not None:
        number, points = found
        assert points in (None, [1, 5])
        order.append((number, points is None))
        # Odd ones are fast at the first point, even ones at the last; the higher their number, the slower.
        secs = [1.0 + number + 100 * (number % 2 == (place > 2)) for place in range(6)]
        line = {"error": None, "secs": secs if points is None else [secs[place] for place in points]}
        known[f"k{number}"] = line | ({} if points is None else {"pruned": True})
    assert order[:30] == [(number, False) for number in range(30)]
    assert order[30:60:2] != order[:30:2] and {whole for _, whole in order[30:60]} == {True}  # what is known
    assert sorted(number for number, whole in order if not whole) == list(range(count))
    assert {number for number, whole in order if whole} == set(range(NUM_BEST))
    assert len(order) == count + NUM_BEST
    known["k0"] = {"error": "off by nan", "secs": []}
    assert "k0" not in best_of(known, facts)
    few = facts | {"candidates": facts["candidates"][:NUM_BEST]}
    assert next_of({}, few, True) == (0, None)


@pytest.mark.thorough
@needs_nvrtc
def test_what_an_older_driver_needs_is_compiled_once(
    borrowed: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import packed
    from device import GpuError

    shutil.copytree(borrowed[0] / "two" / "pack", tmp_path / "pack")
    pack, compiled = packed.Pack(tmp_path / "pack"), list[str]()

    def compile_text(text: str, arch: str) -> bytes:
        if len(compiled) == 3:
            raise GpuError("ended")
        compiled.append(text)
        return f"{arch}: {len(text)}".encode()

    monkeypatch.setattr(packed, "compile_text", compile_text)
    with pytest.raises(GpuError, match="ended"):
        pack.compile_here()
    first = list(compiled)
    compiled.clear()
    pack.compile_here()
    assert sorted(first + compiled) == sorted({*first, *compiled})  # each text once
    assert len(first) + len(compiled) == len(TILES)
    name = pack.facts["candidates"][0]["file"]
    assert pack.file(f"{name}.cubin") == f"sm_90a: {len(pack.file(f'{name}.cu').decode())}".encode()


def test_records_of_something_else_are_not_gone_on_with() -> None:
    from measure import check_goes_on

    header = {"workload": "sha256:1", "made": {"commit": "a"}, "device": {"id": "f00d"}}
    facts = {"workload": "sha256:1", "commit": "a"}
    check_goes_on(header, facts, {"id": "f00d"}, Path("r.jsonl"))
    for changed, device, what in (
        (facts | {"workload": "sha256:2"}, "f00d", "workload"),
        (facts | {"commit": "b"}, "f00d", "commit"),
        (facts, "beef", "GPU"),
    ):
        with pytest.raises(SystemExit, match=f"r.jsonl: of {what} .*; give another -o, or remove it"):
            check_goes_on(header, changed, {"id": device}, Path("r.jsonl"))
