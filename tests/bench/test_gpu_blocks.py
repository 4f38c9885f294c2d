"""Blocks in the GPU benchmark: packed, called as there, and compared with PyTorch's own functions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from needs import needs_nvrtc, of_extra

from benchmarks.gpu.pack import block_facts, candidates_of, write_pack
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.forms import problem_of
from dietcode.target.cuda import CudaTarget
from dietcode.workload.parse import spec_from_data

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
for folder in (GPU, ROOT / "tests" / "library", ROOT / "tests" / "search_space"):
    sys.path.append(str(folder))
# Of each example: sizes that an emulator takes, and a micro-kernel.
BLOCKS: dict[str, tuple[dict[str, Any], CudaMicroKernel]] = {
    "swiglu-fp16": ({"n": 40, "k": 48}, CudaMicroKernel(32, 32, 16, 16, 32, stages=2, unit="mma")),
    "attention-fp16": ({"h": 2, "d": 32}, CudaMicroKernel(32, 32, 16, 32, 32, stages=2, unit="mma")),
    "attention-decode-fp16": (
        {"g": 2, "r": 3, "d": 24},
        CudaMicroKernel(16, 32, 16, 32, 32, stages=2, splits=2, unit="mma"),
    ),
}
RANGES = {"M": (1, 40), "B": (1, 2), "L": (1, 70), "T": (1, 4), "C": (4, 100)}


def spec_of(name: str) -> Any:
    data = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    ranges = {v: {"min": RANGES[v][0], "max": RANGES[v][1]} for v in data["shape_vars"]}
    return spec_from_data(data | {"dims": data["dims"] | BLOCKS[name][0], "shape_vars": ranges})


@needs_nvrtc
@pytest.mark.parametrize("name", BLOCKS)
def test_packed_blocks_compute(name: str, tmp_path: Path) -> None:
    """What is called on the GPU's machine is right there, and so are the baselines."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    import baselines
    from compare import make_others
    from emulated_driver import load_driver, register
    from emulation import compiled
    from packed import MicroKernel, Pack, Tensors, ready

    spec, tile = spec_of(name), BLOCKS[name][1]
    assert list(write_pack(tmp_path, spec, CudaTarget("sm_90a"), [(tile, "hardware")])) == []
    pack = Pack(tmp_path)
    (candidate,) = pack.facts["candidates"]
    register(
        load_driver(),
        compiled(pack.file(f"{candidate['file']}.cu").decode()),
        [function["symbol"] for function in candidate["functions"]],
    )
    for number in (0, len(pack.facts["instances"]) - 1):
        tensors = Tensors(torch, pack, pack.facts["instances"][number], copies=2, device="cpu")
        tensors.sets[0][pack.facts["output"]].fill_(float("nan"))
        MicroKernel(ready(pack), pack, candidate).bind(torch, tensors, "instances")(0)
        assert tensors.error_of(torch, pack) < pack.max_error
        for make in (baselines.cublas, baselines.attention):
            other = make(torch, pack)
            assert (other is None) == (make is baselines.attention and name == "swiglu-fp16")
            if other is not None:  # which rounds what lies between
                assert tensors.error_of(torch, pack, other(tensors.sets[0])) < 4 * pack.max_error
    others, missing = make_others(torch, pack, ["torch.compile"])
    assert set(others) == {"cublas"} | ({"sdpa"} if "attention" in name else set()) and not missing


def test_candidates_of_a_block_are_its_space() -> None:
    spec = spec_of("swiglu-fp16")
    problem = device_problem(problem_of(spec))
    found = candidates_of(problem, spec, CudaTarget("sm_90a"), 50, 0)
    assert len(found) == 50 and found[0][0].unit == "mma"


def test_a_block_that_pytorch_does_not_compute_there_is_refused() -> None:
    data = yaml.safe_load((ROOT / "examples" / "treelstm-cell.yaml").read_text())
    problem = problem_of(spec_from_data(data))
    assert isinstance(problem, BlockProblem)
    with pytest.raises(ValueError, match=r"a block with gather.*; allowed: one output, of einsum"):
        block_facts(problem)
