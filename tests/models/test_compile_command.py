"""From an exported model to a bundle by the command line, and from the bundle to results without PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import compile_cache
import numpy as np
import pytest
from needs import of_extra
from small_libraries import ROOT

import dietcode
from dietcode.lean import with_torch, without_torch

if find_spec("torch") is None or find_spec("tvm") is None:
    pytest.skip(of_extra("models"), allow_module_level=True)

_BUDGET = ("--trials", "2", "--seconds", "2")
_SHAPES = [(1, 1), (2, 7), (4, 32), (3, 20), (2, 7)]
_RUN = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tvm", "torch", "scipy", "psutil", "xgboost"}:
            raise ImportError(f"{name} is blocked in this test")
sys.meta_path.insert(0, Blocked())
import numpy as np
import dietcode
model = dietcode.load(sys.argv[1])
given = np.load(sys.argv[2])
found = {}
for number in range(len(given)):
    outputs = model(given[str(number)])
    assert list(outputs) == ["pooled", "rows"]
    found |= {f"{name}{number}": array for name, array in outputs.items()}
np.savez(sys.argv[3], **found)
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """``python -m dietcode`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dietcode", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=with_torch(os.environ) | {"DIETCODE_CACHE": str(compile_cache.parts())},
        timeout=400,
        check=False,
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The file of a program, and the module: two layers alike, and a weight that is a scalar."""
    import torch

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
            self.scale = torch.nn.Parameter(torch.tensor(1.5))

        def forward(self, x: Any) -> Any:
            rows = torch.relu(self.second(torch.relu(self.first(x))))
            return {"pooled": rows.mean(1) * self.scale, "rows": rows}

    torch.manual_seed(0)
    module = Small().eval()
    batch, length = torch.export.Dim("B", min=1, max=4), torch.export.Dim("L", min=1, max=32)
    exported = torch.export.export(module, (torch.zeros(2, 5, 16),), dynamic_shapes=({0: batch, 1: length},))
    path = tmp_path_factory.mktemp("program") / "Small Model.pt2"
    torch.export.save(exported, path)
    return path, module


@pytest.fixture(scope="module")
def bundle(program: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled, from a cache that may know its parts."""
    folder = tmp_path_factory.mktemp("compiled") / "bundle"
    done = run("compile", program[0], "-o", folder, *_BUDGET)
    assert done.returncode == 0, done.stderr
    assert f"{folder}: done in " in done.stdout and f"dietcode.load('{folder}')" in done.stdout
    return folder


def _right(module: Any, x: Any) -> dict[str, Any]:
    import torch

    with torch.no_grad():
        return {name: one.numpy() for name, one in module(torch.from_numpy(x)).items()}


def _assert_near(found: Any, right: Any) -> None:
    assert found.shape == right.shape and found.dtype == right.dtype
    assert np.abs(found - right).max() <= 1e-5 * max(np.abs(right).max(), 1e-3)


def test_it_runs_without_torch_and_without_a_compiler(
    bundle: Path, program: tuple[Path, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    given = {
        str(number): rng.standard_normal((*shape, 16), np.float32) for number, shape in enumerate(_SHAPES)
    }
    np.savez(tmp_path / "given.npz", **given)  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(bundle), str(tmp_path / "given.npz"), str(tmp_path / "found.npz")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=without_torch(os.environ),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "found.npz") as arrays:
        found = dict(arrays)
    for number, x in given.items():
        for name, right in _right(program[1], x).items():
            _assert_near(found[f"{name}{number}"], right)


def test_tensors_of_torch_and_weights_of_a_fine_tuned_copy(
    bundle: Path, program: tuple[Path, Any], tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    x = torch.randn(3, 9, 16)
    model: Any = dietcode.load(bundle)
    with torch.no_grad():
        _assert_near(model(x)["rows"].numpy(), program[1](x)["rows"].numpy())
    tuned = {name: one.detach() * 0.5 for name, one in program[1].state_dict().items()}
    save_file(tuned, tmp_path / "tuned.safetensors")
    right = torch.func.functional_call(program[1], tuned, (x,))["pooled"].detach()
    again: Any = dietcode.load(bundle, weights=tmp_path / "tuned.safetensors")
    _assert_near(again(x)["pooled"].numpy(), right.numpy())


@pytest.mark.long
def test_layers_alike_share_a_library_and_are_not_tuned_again(
    bundle: Path, program: tuple[Path, Any], tmp_path: Path
) -> None:
    done = run("compile", program[0], "-o", tmp_path / "again", *_BUDGET, "--json", "--name", "other")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["name"] == "other" and facts["folder"] == str(tmp_path / "again")
    assert facts["dimensions"] == {"x_0": {"min": 1, "max": 4}, "x_1": {"min": 1, "max": 32}}
    products = [part for part in facts["parts"] if part["kind"] == "einsum"]
    assert [part["calls"] for part in products] == [2]
    # A stage has one line, its last.
    assert (
        f"part {len(facts['parts'])}/{len(facts['parts'])}" in done.stderr and "built before" in done.stderr
    )
    assert not any(stage in done.stderr for stage in ("measure ", "select", "verify")), done.stderr
    for part in facts["parts"]:
        own = Path("libraries", part["digest"], "library.so")
        assert (tmp_path / "again" / own).read_bytes() == (bundle / own).read_bytes()


@pytest.mark.long  # it tunes for another range
def test_a_bundle_without_weights_and_with_a_narrower_range(
    bundle: Path, program: tuple[Path, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "narrow"
    done = run("compile", program[0], "-o", folder, *_BUDGET, "--no-weights", "--range", "x_1=2..8")
    assert done.returncode == 0, done.stderr
    assert not (folder / "weights.safetensors").exists()
    model: Any = dietcode.load(folder, weights=bundle / "weights.safetensors")
    x = np.ones((2, 8, 16), np.float32)
    _assert_near(model(x)["rows"], _right(program[1], x)["rows"])
    with pytest.raises(dietcode.errors.ShapeError, match="makes x_1 9; allowed: 2…8"):
        model(np.ones((2, 9, 16), np.float32))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--range", "x_1=1..64"), "x_1"),
        pytest.param(("--range", "x_1=9..2"), "x_1", marks=pytest.mark.long),  # each is read by a child
        pytest.param(("--range", "K=1..2"), "K", marks=pytest.mark.long),
        (("--range", "x_1:1-2"), "--range: given 'x_1:1-2'; allowed: NAME=LOW..HIGH, as L=1..512"),
    ],
)
def test_ranges_that_are_refused(
    program: tuple[Path, Any], tmp_path: Path, arguments: tuple[str, ...], message: str, inside: Any
) -> None:
    _assert_refused(inside("compile", program[0], "-o", tmp_path / "out", *_BUDGET, *arguments), message)
    assert not (tmp_path / "out").exists()


def _assert_refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("dietcode: ") and message in line


@pytest.mark.thorough
def test_files_that_are_refused(tmp_path: Path, inside: Any) -> None:
    (tmp_path / "model.tflite").write_bytes(b"")
    (tmp_path / "broken.pt2").write_bytes(b"no archive")
    for name, message in (
        ("none.pt2", "none.pt2: no such file; give model.pt2, of torch.export.save, or model.onnx"),
        (
            "model.tflite",
            "model.tflite: a .tflite file; allowed: model.pt2, of torch.export.save, or model.onnx",
        ),
        ("broken.pt2", "broken.pt2: "),
    ):
        _assert_refused(inside("compile", tmp_path / name, "-o", tmp_path / "out"), message)


@pytest.mark.long
@pytest.mark.skipif(find_spec("onnx") is None, reason=of_extra("onnx"))
def test_a_model_of_onnx_from_file_to_result(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((16, 8), np.float32), "b": rng.standard_normal(8, np.float32)}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "graph",
        [value("x", TensorProto.FLOAT, ["L", 16])],
        [value("y", TensorProto.FLOAT, ["L", 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 18)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    done = run("compile", path, "-o", tmp_path / "bundle", *_BUDGET, "--range", "L=1..32")
    assert done.returncode == 0, done.stderr
    model: Any = dietcode.load(tmp_path / "bundle")
    for length in (1, 7, 32):
        x = rng.standard_normal((length, 16), np.float32)
        _assert_near(model(x=x), np.maximum(x @ weights["w"] + weights["b"], 0))


@pytest.mark.long
def test_a_folder_of_something_else_is_left_alone(
    program: tuple[Path, Any], tmp_path: Path, inside: Any
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    done = inside("compile", program[0], "-o", tmp_path / "notes", *_BUDGET)
    assert done.returncode == 1 and "holds files that are no library" in done.stderr
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"


def test_inspect_shows_a_bundle_and_its_libraries(bundle: Path, inside: Any) -> None:
    done = inside("inspect", bundle)
    assert done.returncode == 0, done.stderr
    for text in (
        "small-model  x_0 in 1…4, x_1 in 1…32",
        "input       x: float32[x_0, x_1, 16]",
        "weights     5, ",
    ):
        assert text in done.stdout
    facts = json.loads(inside("inspect", bundle, "--json").stdout)
    assert sum(part["flops_at_most"] for part in facts["report"]["parts"]) > 0
    few = [part for part in facts["report"]["parts"] if part["search"]["measured"] < 2]
    few = [part for part in few if part["search"]["stop"] in ("trials", "seconds")]
    warning = facts["report"]["warning"] or ""
    assert not few or "the budget ended the search of" in warning
    for part in facts["report"]["parts"]:
        assert 1 <= part["search"]["measured"] <= 2  # a trial may have gone to the seed
        own = json.loads(inside("inspect", bundle / "libraries" / part["digest"], "--json").stdout)
        assert part["measured"] == own["report"]["space"]["measured"]
        assert len(own["dispatch"]["categories"]) == part["categories"] >= 1
        assert part["digest"][:12] in done.stdout


def test_a_bundle_has_no_objective_of_its_own(bundle: Path, tmp_path: Path, inside: Any) -> None:
    message = "is a whole model; give one of its libraries, DIR/libraries/DIGEST"
    wanted = ("--objective", "max_kernels=1", "-o", tmp_path / "out")
    _assert_refused(inside("reselect", bundle, *wanted), message)


def test_bench_says_where_the_time_of_a_call_goes(bundle: Path, inside: Any) -> None:
    done = inside("bench", bundle, "--at", "x_0=2,x_1=7", "--at", "x_1=32", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first["dimensions"] == {"x_0": 2, "x_1": 7}
    assert second["dimensions"] == {"x_0": 2, "x_1": 32}, "the geometric mean of 1…4"
    report = json.loads(inside("inspect", bundle, "--json").stdout)["report"]
    calls = {part["digest"]: part["calls"] for part in report["parts"]}
    for record in (first, second):
        assert {part["digest"]: part["calls"] for part in record["parts"]} == calls
        assert {row["operator"]: row["calls"] for row in record["host"]} == report["host_operators"]
        assert record["secs"] > 0
        for part in record["parts"]:
            assert part["secs"] > 0 and part["kernel_secs"] > 0 and part["categories"]
            assert part["share"] == pytest.approx(part["secs"] / record["secs"])
            assert (part["vendor"] is None) == (part["vendor_secs"] is None)
        assert any(part["vendor"] == "numpy" for part in record["parts"])
    done = inside("bench", bundle, "--at", "x_0=2,x_1=7", "--rounds", "1")
    assert "x_0=2, x_1=7: a call takes" in done.stdout
    assert all(digest[:12] in done.stdout for digest in calls)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--at", "x_0=5"), "--at: x_0=5; allowed: 1…4"),
        (("--at", "L=5"), "--at: L; allowed: x_0, x_1"),
        (("--at", "x_0"), "--at: 'x_0'; allowed: NAME=VALUE,…, such as L=37 or B=2,L=128"),
        (("--at", "x_0=-1"), "--at: 'x_0=-1'; allowed: NAME=VALUE"),
        (("--vs", "tpu"), "--vs: 'tpu'; allowed: numpy, torch"),
    ],
)
def test_bench_refuses_what_a_model_has_not(
    bundle: Path, inside: Any, arguments: tuple[str, ...], message: str
) -> None:
    _assert_refused(inside("bench", bundle, *arguments), message)


def test_bench_of_a_library_takes_no_sizes_of_a_model(bundle: Path, inside: Any) -> None:
    library = next((bundle / "libraries").iterdir())
    _assert_refused(inside("bench", library, "--at", "x_0=1"), "--at and --weights are of whole models")
