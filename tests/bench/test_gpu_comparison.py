"""What the GPU benchmark compares with, in which order, and what is kept of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from needs import of_extra

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
sys.path.append(str(GPU))


@pytest.mark.parametrize(
    ("einsum", "shapes"),
    [
        ("mk,nk->mn", ((5, 8), (7, 8))),
        ("btk,bsk->bts", ((3, 5, 8), (3, 7, 8))),
        ("btk,bkn->btn", ((3, 5, 8), (3, 8, 7))),
        ("km,kn->mn", ((8, 5), (8, 7))),  # by einsum
    ],
)
def test_baselines_compute_the_workload(einsum: str, shapes: Any) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    from baselines import cublas, kind_of

    pack = SimpleNamespace(facts={"einsum": einsum, "conv2d": None, "operands": ["A", "B"], "stages": []})
    given = {n: torch.randn(s, dtype=torch.float64) for n, s in zip("AB", shapes, strict=True)}
    found = cublas(torch, pack)(given)
    assert torch.allclose(found, torch.einsum(einsum, given["A"], given["B"]))
    assert kind_of(einsum) == kind_of(einsum.translate(str.maketrans("btskmn", "xyzuvw")))


def test_instances_are_compared_from_the_largest_on() -> None:
    from order import picked

    assert picked(1, 32) == [0]
    assert picked(5, 32) == [4, 0, 2, 1, 3]
    assert picked(128, 2) == [127, 0]
    assert picked(41, 3) == [40, 0, 20]
    assert sorted(picked(128, 200)) == list(range(128))
    assert len(set(picked(128, 32))) == 32
    assert sorted(picked(128, 32)[:5]) == pytest.approx([0, 32, 64, 96, 127], abs=4)  # where time is up early


def test_results_are_kept_by_device(tmp_path: Path) -> None:
    from sequence import WORKLOADS, keep, steps

    assert list(WORKLOADS)[:3] == ["bert-dense", "bert-bmm-qk", "bert-dense-fp16"]
    assert all((ROOT / "examples" / f"{name}.yaml").is_file() for name in WORKLOADS)
    for command in steps(
        tmp_path / "pack", tmp_path, dict.fromkeys(("measure", "alone", "compare"), 1.0)
    ).values():
        text = Path(command[0]).read_text()
        assert all(f'"{option}"' in text for option in command if option.startswith("--"))
    results, kept = tmp_path / "results", tmp_path / "kept"
    results.mkdir()
    device: dict[str, Any] = {"name": "A GPU (80 GB)", "synthetic": False}
    (results / "records.jsonl").write_text(json.dumps({"device": device}) + "\n")
    (results / "compared.json").write_text(json.dumps({"device": "A GPU (80 GB)"}))
    assert keep("dense", results, kept) == kept / "a-gpu-80-gb"
    assert {path.name for path in (kept / "a-gpu-80-gb").iterdir()} == {"dense.json", "dense.jsonl"}
    (results / "compared.json").write_text(json.dumps({"device": "another"}))
    with pytest.raises(SystemExit, match="records of A GPU \\(80 GB\\), compared on another"):
        keep("dense", results, kept)
    (results / "compared.json").write_text(json.dumps({"device": device["name"], "wrong": ["off by nan"]}))
    with pytest.raises(SystemExit, match="wrong results: off by nan; none are kept"):
        keep("dense", results, kept)
    (results / "compared.json").write_text(json.dumps({"device": "another"}))
    (results / "records.jsonl").write_text(json.dumps({"device": device | {"synthetic": True}}) + "\n")
    with pytest.raises(SystemExit, match="no device measured them"):
        keep("dense", results, kept)


@pytest.mark.parametrize("data", ["NHWC", "NCHW"])
@pytest.mark.parametrize("kernel", ["OIHW", "OHWI", "HWIO"])
def test_a_convolution_is_what_a_spec_says(data: str, kernel: str) -> None:
    """What kernels are checked against, and both baselines of cuDNN."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    import baselines

    from benchmarks.gpu.points import sweep_of
    from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
    from dietcode.search_space.problem import extents_of, problem_from_spec
    from dietcode.search_space.reference import reference
    from dietcode.workload.parse import spec_from_data

    layouts = {"data_layout": data, "kernel_layout": kernel}
    op = {"strides": [1, 2], "padding": [2, 1], "dilation": [1, 2], "groups": 2, **layouts}
    spec = spec_from_data(
        {
            "name": "conv",
            "op": {"conv2d": op, "epilogue": [{"residual": "R"}]},
            "tensors": {
                "X": {"dims": data.lower(), "dtype": "float32"},
                "W": {"dims": kernel.lower().translate(str.maketrans("hw", "rs")), "dtype": "float32"},
            },
            "output": {"name": "Y", "dtype": "float32"},
            "shape_vars": {"B": {"min": 1, "max": 40}},
            "dims": {"n": "B", "h": 5, "w": 9, "c": 6, "i": 3, "o": 4, "r": 3, "s": 2},
        }
    )
    problem = problem_from_spec(spec)
    extents, generator = extents_of(spec, {"B": 3}), torch.Generator().manual_seed(0)
    given = {
        name: torch.randn(problem.shape(name, extents), generator=generator, dtype=torch.float64)
        for name in problem.inputs
    }
    facts = {"conv2d": spec.op.conv2d.to_json(), "operands": ["X", "W"], "einsum": None}
    pack = SimpleNamespace(facts=facts | {"stages": [{"kind": "residual", "tensor": "R"}]})
    expected = reference(problem, {name: value.numpy() for name, value in given.items()})
    for baseline in (baselines.cudnn, baselines.cudnn_other_format):
        assert abs(baseline(torch, pack)(given).numpy() - expected).max() < 1e-9
    assert baselines.cublas(torch, pack) is None
    blocks = [row["extents"]["n"] for row in sweep_of(problem, spec, CudaMicroKernel(64, 64, 8, 4, 16))]
    assert blocks == [count * (2 if data == "NHWC" else 1) for count in range(1, 65)]  # of 7·5 positions


def test_a_compiler_is_told_what_never_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    import baselines

    seen: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        given = [node.meta["example_value"] for node in module.graph.find_nodes(op="placeholder")]
        given = [value for value in given if isinstance(value, torch.Tensor)]
        seen.append([[type(extent).__name__ for extent in value.shape] for value in given])
        return module

    compile_it = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_: compile_it(f, dynamic=True, backend=backend))
    instances = [{"shapes": {"X": [m, 8], "W": [6, 8], "Y": [m, 6]}} for m in (4, 7, 9)]
    facts = {"einsum": "mk,nk->mn", "conv2d": None, "operands": ["X", "W"], "stages": []}
    function = baselines.compiled(torch, SimpleNamespace(facts=facts | {"instances": instances}))
    for instance in instances:
        given = {name: torch.ones(shape) for name, shape in instance["shapes"].items()}
        assert torch.equal(function(given), torch.full(instance["shapes"]["Y"], 8.0))
    (shapes,) = seen  # compiled once
    assert sorted(shapes) == [["SymInt", "int"], ["int", "int"]]
