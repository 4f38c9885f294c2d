"""The float64 reference beside NumPy's einsum and plain loops; and the static function beside it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from compiled import make_problem
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.search_space.expected import expect
from dietcode.search_space.problem import Problem, instance_extents, problem_from_spec
from dietcode.search_space.reference import part, reference
from dietcode.search_space.stage import Stage
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec

LABELS = "abcdef"


@st.composite
def einsums(draw: Any) -> str:
    """Any einsum of two operands with an output index, without repeated letters."""
    first, second = (
        "".join(
            draw(
                st.permutations(draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=4, unique=True)))
            )
        )
        for _ in range(2)
    )
    both = sorted(set(first + second))
    output = draw(st.lists(st.sampled_from(both), min_size=1, max_size=6, unique=True))
    return f"{first},{second}->{''.join(output)}"


@settings(deadline=None, max_examples=examples(200))
@given(einsums(), st.integers(0, 2**31), st.booleans(), st.floats(0.0, 1.0))
def test_any_einsum(einsum: str, seed: int, bias: bool, share: float) -> None:
    rng = np.random.default_rng(seed)
    problem = make_problem(einsum, stages=[Stage("bias", "bias"), Stage("scale", value=0.5)] if bias else [])
    problem.check()
    extents = {letter: int(rng.integers(1, 4)) for letter in problem.extents}
    arrays = {name: rng.standard_normal(problem.shape(name, extents)) for name in problem.inputs}
    expected = np.einsum(einsum, arrays["X"], arrays["W"])
    if bias:
        expected = (expected + arrays["bias"]) * 0.5
    np.testing.assert_allclose(reference(problem, arrays), expected, atol=1e-9)
    check_sample(problem, arrays, extents, share)


def check_sample(problem: Problem, arrays: dict[str, Any], extents: dict[str, int], share: float) -> None:
    """A sample of the output is what lies there in all of it."""
    whole = expect(problem, arrays, extents)
    assert not whole.positions
    flops = float(problem.flops(dict(extents)))
    some = expect(problem, arrays, extents, share * flops)
    counts = [len(some.positions.get(k, range(extents[k]))) for k in problem.indices[problem.output]]
    sampled = flops * np.prod(counts) / np.prod([extents[k] for k in problem.indices[problem.output]])
    assert sampled <= max(share * flops, flops / np.prod(whole.values.shape)) * (1 + 1e-9)
    assert all(positions[-1] == extents[k] - 1 for k, positions in some.positions.items())
    assert all((np.diff(positions) > 0).all() for positions in some.positions.values())
    expected = part(problem, problem.output, whole.values, extents, some.positions)
    np.testing.assert_allclose(some.values, expected, atol=1e-9)
    output = whole.values.astype(np.float32)
    assert some.error_of(output) < 1e-6
    output.flat[-1] += 2 * np.abs(whole.values).max() + 1
    assert some.error_of(output) > 0.5  # the last element is always in it
    output[...] = whole.values
    output.flat[0] = np.nan
    assert np.isnan(some.error_of(output))


def conv_spec(options: dict[str, Any], dims: dict[str, Any], epilogue: tuple[Any, ...] = ()) -> Spec:
    data, kernel = options.get("data_layout", "NHWC"), options.get("kernel_layout", "OIHW")
    inner = "c" if options.get("groups", 1) == 1 else "i"
    letters = kernel.lower().replace("h", "r").replace("w", "s").replace("i", inner)
    return spec_from_data(
        {
            "name": "conv",
            "op": {"conv2d": options, "epilogue": list(epilogue)},
            "tensors": {
                "X": {"dims": data.lower(), "dtype": "float32"},
                "W": {"dims": letters, "dtype": "float32"},
            },
            "output": {"name": "Y", "dtype": "float32"},
            "shape_vars": {"T": {"min": 1, "max": 4}},
            "dims": {k: v for k, v in dims.items() if k != "i" or inner == "i"},
        }
    )


def convolved(spec: Spec, data: Any, kernel: Any) -> Any:
    """By loops over the output's and the kernel's places."""
    op = spec.op.conv2d
    assert op is not None
    data = data.transpose([op.data_layout.index(axis) for axis in "NHWC"])
    kernel = kernel.transpose([op.kernel_layout.index(axis) for axis in "OIHW"])
    top, bottom, left, right = op.padding if len(op.padding) == 4 else np.repeat(op.padding, 2)
    high, wide = (
        (size + pad - step * (window - 1) - 1) // stride + 1
        for size, window, stride, pad, step in zip(
            data.shape[1:3],
            kernel.shape[2:],
            op.strides,
            (top + bottom, left + right),
            op.dilation,
            strict=True,
        )
    )
    outer, inner = kernel.shape[:2]
    result = np.zeros((len(data), high, wide, outer))
    for y, x, i, j in itertools.product(range(high), range(wide), *map(range, kernel.shape[2:])):
        row = y * op.strides[0] + i * op.dilation[0] - top
        column = x * op.strides[1] + j * op.dilation[1] - left
        if 0 <= row < data.shape[1] and 0 <= column < data.shape[2]:
            for channel in range(outer):
                first = channel // (outer // op.groups) * inner
                seen = data[:, row, column, first : first + inner]
                result[:, y, x, channel] += seen @ kernel[channel, :, i, j]
    return result.transpose(["NHWC".index(axis) for axis in op.data_layout])


def drawn(spec: Spec, problem: Problem, size: int) -> tuple[dict[str, int], dict[str, Any]]:
    """Extents for T = `size`, and random inputs."""
    found = instance_extents(spec, {"T": np.array([size])})
    extents = {letter: int(values[0]) for letter, values in found.items()}
    rng = np.random.default_rng(size)
    return extents, {name: rng.standard_normal(problem.shape(name, extents)) for name in problem.inputs}


steps = st.integers(1, 3)


@settings(deadline=None, max_examples=examples(60))
@given(
    options=st.fixed_dictionaries(
        {
            "strides": st.tuples(steps, steps).map(list),
            "padding": st.lists(st.integers(0, 3), min_size=2, max_size=4).filter(lambda p: len(p) != 3),
            "dilation": st.tuples(steps, steps).map(list),
            "groups": st.sampled_from([1, 2]),
            "data_layout": st.sampled_from(["NHWC", "NCHW"]),
            "kernel_layout": st.sampled_from(["OIHW", "OHWI", "HWIO"]),
        }
    ),
    window=st.tuples(steps, steps),
    size=st.integers(1, 3),
    share=st.floats(0.0, 1.0),
)
def test_any_convolution(options: dict[str, Any], window: tuple[int, int], size: int, share: float) -> None:
    dims = {"n": "T", "h": "2*T + 5", "w": 8, "c": 4, "i": 2, "o": 6, "r": window[0], "s": window[1]}
    spec = conv_spec(options, dims, ("bias", {"residual": "R"}, "relu"))
    problem = problem_from_spec(spec)
    problem.check()
    extents, arrays = drawn(spec, problem, size)
    for name, letters in (spec.operand_indices | spec.epilogue_tensors).items():
        assert arrays[name].shape == tuple(spec.dims_parsed[k].evaluate({"T": size}) for k in letters)
    channels = [-1 if axis == "C" else 1 for axis in options["data_layout"]]
    expected = convolved(spec, arrays["X"], arrays["W"]) + arrays["bias"].reshape(channels) + arrays["R"]
    assert expected.shape == tuple(spec.dims_parsed[k].evaluate({"T": size}) for k in spec.output_indices)
    np.testing.assert_allclose(reference(problem, arrays), np.maximum(expected, 0), atol=1e-9)
    check_sample(problem, arrays, extents, share)


def test_a_convolution_along_one_axis_is_one_of_height_one() -> None:
    dims = {"n": "T", "w": 9, "c": 4, "i": 2, "o": 6, "s": 3}
    options = {"padding": [2, 1], "stride": 2, "dilation": 2, "groups": 2}
    tensors = {"X": {"dims": "nwc", "dtype": "float32"}, "W": {"dims": "ois", "dtype": "float32"}}
    shape_vars = {"T": {"min": 1, "max": 4}}
    spec = spec_from_data(
        {"name": "c", "op": {"conv1d": options}, "tensors": tensors, "shape_vars": shape_vars, "dims": dims}
    )
    problem = problem_from_spec(spec)
    problem.check()
    assert Problem.from_json(problem.to_json()) == problem
    _, arrays = drawn(spec, problem, 3)
    flat = {"strides": [1, 2], "padding": [0, 0, 2, 1], "dilation": [1, 2], "groups": 2}
    other = problem_from_spec(conv_spec(flat, dims | {"h": 1, "r": 1}))
    expected = reference(other, {"X": arrays["X"][:, None], "W": arrays["W"][:, :, None]})
    np.testing.assert_array_equal(reference(problem, arrays), expected[:, 0])


def test_what_lies_outside_is_zero_whatever_is_inside() -> None:
    spec = conv_spec({"padding": 1}, {"n": 1, "h": "T", "w": 3, "c": 1, "o": 1, "r": 3, "s": 3})
    problem = problem_from_spec(spec)
    data = np.zeros((1, 3, 3, 1))
    data[0, 0, 0] = np.inf
    result = reference(problem, {"X": data, "W": np.ones((1, 1, 3, 3))})
    assert np.isinf(result[0, :2, :2]).all()
    assert np.isfinite(result[0, 2]).all()


def test_shapes_that_do_not_fit() -> None:
    problem = make_problem("mk,nk->mn", {"k": 3})
    for first, second in (((2, 4), (5, 4)), ((2, 3), (5, 4)), ((2, 3, 1), (5, 3))):
        with pytest.raises(ValueError, match="shape"):
            reference(problem, {"X": np.zeros(first), "W": np.zeros(second)})


STATIC = [
    ({}, {}),
    ({"strides": 2, "padding": 1}, {"r": 3, "s": 3}),
    ({"padding": [2, 0], "dilation": 2, "data_layout": "NCHW", "groups": 2}, {"r": 3, "s": 2}),
]


@pytest.mark.parametrize(("options", "window"), STATIC, ids=str)
def test_the_static_function_of_a_convolution(options: dict[str, Any], window: dict[str, int]) -> None:
    dims = {"n": "T", "h": 7, "w": 9, "c": 4, "i": 2, "o": 6, "r": 1, "s": 1} | window
    spec = conv_spec(options, dims)
    check_static(problem_from_spec(spec), *drawn(spec, problem_from_spec(spec), 2))


@pytest.mark.parametrize("einsum", ["bmk,nk->bmn", "mkj,nk->mn", "m,n->mn", "bk,bk->b"])
def test_the_static_function_of_an_einsum(einsum: str) -> None:
    problem = make_problem(einsum, constant=False)
    extents = {letter: 2 + place for place, letter in enumerate(problem.extents)}
    rng = np.random.default_rng(0)
    check_static(
        problem, extents, {n: rng.standard_normal(problem.shape(n, extents)) for n in problem.inputs}
    )


def check_static(problem: Problem, extents: dict[str, int], arrays: dict[str, Any]) -> None:
    import tvm

    from dietcode.search_space.cpu.metaschedule import static_contraction

    module = tvm.compile(tvm.IRModule({"main": static_contraction(problem, extents)}), target="llvm")
    operands = [
        tvm.runtime.tensor(
            arrays[name].reshape([extents[k] for k in problem.indices[name]]).astype("float32")
        )
        for name in problem.inputs[:2]
    ]
    output = tvm.runtime.tensor(np.zeros([extents[k] for k in problem.indices["Y"]], "float32"))
    module["main"](*operands, output)
    expected = reference(problem, arrays)
    np.testing.assert_allclose(output.numpy().reshape(expected.shape), expected, atol=1e-4)
