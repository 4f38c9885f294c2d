"""Code for depthwise convolutions: which problems they are, right at every edge, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import cpu_target
from depthwise_kinds import DEPTHWISE, TRIED, built_depthwise, depthwise_data, depthwise_problem

from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.depthwise.space import allows, around, neighbours, seeds
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.search_space.depthwise import DepthwiseProblem, depthwise_from_spec
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.target.cpu import CpuTarget
from dietcode.workload.parse import spec_from_data

SHAPES = ((1, 9, 9), (2, 9, 20), (1, 14, 10), (3, 10, 31))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in TRIED else pytest.mark.long) for name in DEPTHWISE]
)
def test_every_edge_and_micro_kernel(name: str, target: CpuTarget) -> None:
    built = built_depthwise(name, target.mcpu)
    for seed, shape in enumerate(SHAPES):
        built.check(built.extents(*shape), seed)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("num_cores", [1, 3, 4])
def test_any_number_of_cores(num_cores: int, avx2: CpuTarget) -> None:
    built = built_depthwise("ragged", avx2.mcpu, num_cores)
    for shape in ((1, 1, 9), (1, 9, 9), (2, 5, 7)):
        built.check(built.extents(*shape))


@pytest.mark.parametrize("name", ["plain", "strided"])
def test_a_position_has_the_same_bits_in_any_shape(name: str, target: CpuTarget) -> None:
    """A smaller image is a part of a larger one, seen without its right and lower end."""
    built = built_depthwise(name, target.mcpu)
    large = built.extents(2, 17, 23)
    inputs = built.inputs(large)
    small = built.extents(1, 11, 12)
    part = inputs | {"X": np.ascontiguousarray(inputs["X"][1:, :11, :12])}
    for category in range(len(built.kernels)):
        whole, some = built.run(inputs, large), built.run(part, small, category)
        high, wide = some.shape[1] - 1, some.shape[2] - 1  # but for the last ones, which see the edge
        assert np.array_equal(whole[1:, :high, :wide], some[:, :high, :wide]), built.kernels[category].name


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ragged", "tall", "dilated"])
def test_nan_stays_where_it_is_read(name: str, avx2: CpuTarget) -> None:
    built = built_depthwise(name, avx2.mcpu)
    extents = built.extents(2, 9, 13)
    inputs = built.inputs(extents)
    inputs["X"][0, 4, 5, 1] = inputs["X"][1, 8, 12, 2] = np.nan
    inputs["X"][0, 0, 0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        right = np.isnan(reference(built.problem, inputs))
    assert right.any() and not right.all()
    for category, kernel in enumerate(built.kernels):
        output = built.run(inputs, extents, category)
        found = np.isnan(output) if output.dtype.kind == "f" else (output & 0x7FFF) > 0x7F80
        assert np.array_equal(found, right), kernel.name


def test_weights_that_meet_padding_count_as_in_the_definition(avx2: CpuTarget) -> None:
    """Padding is of zeros, and zero times infinity is NaN, wherever a tile begins."""
    built = built_depthwise("plain", avx2.mcpu)
    extents = built.extents(1, 9, 11)
    inputs = built.inputs(extents)
    inputs["F"][3, 0, 0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        right = np.isnan(reference(built.problem, inputs))
    for category in range(len(built.kernels)):
        assert np.array_equal(np.isnan(built.run(inputs, extents, category)), right)


CHANGES: dict[str, dict[str, Any]] = {
    "another layout": {"op.conv2d.data_layout": "NCHW", "tensors.X.dims": "nchw"},
    "several channels of a group": {"op.conv2d.groups": 32, "dims.i": 2},
    "several filters of a channel": {"dims.o": 128},
}


@pytest.mark.parametrize("change", CHANGES)
def test_others_stay_contractions(change: str) -> None:
    data = depthwise_data("plain")
    for path, value in CHANGES[change].items():
        *parts, last = path.split(".")
        inner: Any = data
        for part in parts:
            inner = inner[part]
        inner[last] = value
    assert type(depthwise_from_spec(spec_from_data(data))) is Problem


def test_plain_data_of_a_problem_and_of_a_micro_kernel() -> None:
    problem = depthwise_problem("strided")
    data = problem.to_json()
    assert data["form"] == "depthwise"
    assert problem_from_json(data) == problem
    with pytest.raises(ValueError, match="batch, rows, columns, reduction"):
        problem_from_json(data | {"batch": ["n"], "rows": list(problem.rows[1:])})
    kernel = DepthwiseKernel(5, 32, strips=True, stream=True)
    assert cpu_micro_kernel(kernel.to_json()) == kernel
    assert kernel.name == "5x32-strips-stream"
    with pytest.raises(ValueError, match="a tile of 0x32"):
        cpu_micro_kernel(kernel.to_json() | {"rows": 0})


def test_the_space() -> None:
    problem, limits = depthwise_problem("plain"), Limits.of(cpu_target("skylake-avx512"))
    space = around(problem, limits)
    others = {kernel.name for kernel in set(seeds(problem, limits)) - set(space)}
    assert others == {"4x16-serial", "4x16-stream", "4x32-stream"}
    assert all(allows(problem, kernel, limits) for kernel in space)
    found = {kernel.name for kernel in neighbours(problem, DepthwiseKernel(4, 32), limits)}
    assert found == {"4x32-strips", "4x32-serial", "4x32-stream"}
    assert not allows(problem, MicroKernel(4, 32), limits)  # of records from before this form
    assert not allows(problem, DepthwiseKernel(15, 32), limits)  # 30 accumulators, and one of each operand
    assert not allows(depthwise_problem("few channels"), DepthwiseKernel(2, 32), limits)
    assert not allows(depthwise_problem("strided"), DepthwiseKernel(4, 16, stream=True), limits)
    assert isinstance(problem, DepthwiseProblem)
