"""Small kernels in full, so that a change of the generated code is seen in review."""

from __future__ import annotations

from typing import Any

import pytest
from compiled import make_problem
from depthwise_kinds import depthwise_problem

from dietcode.search_space.cpu.depthwise.lowering import lower_depthwise
from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.stage import Stage
from dietcode.search_space.tir import script_of

LIMITS = Limits(lanes=8, num_registers=16, l2_bytes=1 << 18, num_cores=2)


def text_of(columns: int, micro_kernel: MicroKernel, constant: bool) -> str:
    stages = [Stage("bias", tensor="bias")]
    problem = make_problem("mk,nk->mn", {"n": columns, "k": 4}, stages, constant)
    module = build_module(problem, [micro_kernel], 0, ("T",), LIMITS)
    return script_of(module) + "\n"


@pytest.mark.parametrize(
    ("name", "columns", "micro_kernel", "constant"),
    [
        ("dense_2x8_bias", 20, MicroKernel(2, 8), True),
        ("dense_3x16_partition", 28, MicroKernel(3, 16, "partition"), True),  # 16 + 8 + 4 columns
        ("dense_2x8_global", 20, MicroKernel(2, 8, "global"), True),
        ("dense_2x8_checked", 20, MicroKernel(2, 8, "checked"), True),
        ("dense_2x4_steps_gather", 20, MicroKernel(2, 4, "partition", 3, gather=True), False),
    ],
)
def test_generated_code_is_as_it_was(
    name: str, columns: int, micro_kernel: MicroKernel, constant: bool, golden: Any
) -> None:
    text = text_of(columns, micro_kernel, constant)
    assert text == text_of(columns, micro_kernel, constant)
    golden(name, text)


def test_generated_code_of_a_depthwise_convolution_is_as_it_was(golden: Any) -> None:
    function = lower_depthwise(depthwise_problem("few channels"), DepthwiseKernel(2, 8), LIMITS, "depthwise")
    golden("depthwise_2x8", script_of(function) + "\n")
