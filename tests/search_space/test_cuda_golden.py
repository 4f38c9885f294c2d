"""Generated CUDA in full, so that a change of it is seen in review."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compiled import make_problem

from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.problem import problem_from_spec
from dietcode.search_space.stage import Stage
from dietcode.target.cuda import CudaTarget
from dietcode.workload.parse import load_spec

DENSE = make_problem("mk,nk->mn", {"n": 2304, "k": 768}, [Stage("bias", tensor="bias")])
HALF = replace(DENSE, operand_dtype="float16", output_dtype="float16")
CONV = problem_from_spec(load_spec(Path(__file__).parents[2] / "examples" / "resnet50-conv3x3.yaml"))
VALUES = make_problem("bmk,bkn->bmn", {"n": 64}, constant=False)


@pytest.mark.parametrize(
    ("name", "problem", "tile"),
    [
        ("cuda_dense_128x128", DENSE, CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2)),
        ("cuda_dense_16x64_split", DENSE, CudaMicroKernel(16, 64, 4, 4, 16, splits=4)),
        ("cuda_values_64x64_partition", VALUES, CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, tails="partition")),
        ("cuda_half_64x64", HALF, CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2)),
        ("cuda_tensor_cores_128x128", HALF, CudaMicroKernel(128, 128, 64, 64, 32, stages=4, unit="mma")),
        ("cuda_values_32x32_checked", VALUES, CudaMicroKernel(32, 32, 4, 4, 8, tails="checked")),
        ("cuda_values_32x32_global", VALUES, CudaMicroKernel(32, 32, 4, 4, 8, tails="global")),
        ("cuda_conv_64x64", CONV, CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2)),
    ],
)
def test_generated_code_is_as_it_was(name: str, problem: Any, tile: CudaMicroKernel, golden: Any) -> None:
    text = cuda_text(problem, [tile], CudaTarget("sm_90"))
    assert text == cuda_text(problem, [tile], CudaTarget("sm_90"))
    golden(name, text)


def test_generated_code_of_warpgroups_is_as_it_was(golden: Any) -> None:
    tile = CudaMicroKernel(128, 128, 64, 128, 64, stages=3, unit="wgmma")
    golden("cuda_warpgroups_128x128", cuda_text(HALF, [tile], CudaTarget("sm_90a")))


def test_generated_code_of_copies_in_bulk_is_as_it_was(golden: Any) -> None:
    tile = CudaMicroKernel(128, 256, 64, 256, 64, stages=4, unit="tma")
    golden("cuda_bulk_128x256", cuda_text(HALF, [tile], CudaTarget("sm_90a")))


def test_generated_code_of_clusters_is_as_it_was(golden: Any) -> None:
    tile = CudaMicroKernel(128, 128, 64, 128, 64, stages=4, unit="tma", cluster_rows=2, persistent=True)
    golden("cuda_clusters_128x128", cuda_text(HALF, [tile], CudaTarget("sm_90a")))
