"""Each vendor path computes the operator, in whatever layout it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import SAFE_ERROR, error, spec_data

from dietcode.bench.operator import Convolution, Operator, matmul_plan
from dietcode.bench.vendor import vendor_paths
from dietcode.errors import RequestError
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.workload.conv2d import Sliding
from dietcode.workload.parse import spec_from_data

LAYOUTS = [("nhwc", "oihw"), ("nchw", "oihw"), ("nhwc", "hwio"), ("nchw", "ohwi")]


def operator(**changes: Any) -> Operator:
    return Operator.of_spec(spec_from_data(spec_data("case", **changes)))


def random_arrays(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def convolution(
    data_layout: str, kernel_layout: str, epilogue: tuple[Any, ...] = (), **changes: Any
) -> Operator:
    """Images of 9×8, 5 channels to 6, kernel 3×2, strides (2, 1), padding (1, 0), dilation (1, 2)."""
    options = {"strides": [2, 1], "padding": [1, 0], "dilation": [1, 2], **changes.pop("options", {})}
    kernel = {"o": "o", "i": "i" if options.get("groups", 1) > 1 else "c", "h": "r", "w": "s"}
    layouts = {"data_layout": data_layout.upper(), "kernel_layout": kernel_layout.upper()}
    sizes = {"h": 9, "w": 8, "c": 5, "o": 6, "r": 3, "s": 2} | changes
    dims = "".join(kernel[k] for k in kernel_layout)
    return operator(
        op={"conv2d": layouts | options, "epilogue": list(epilogue)},
        tensors={
            "X": {"dims": data_layout, "dtype": "float32"},
            "W": {"dims": dims, "dtype": "float32", "constant": True},
        },
        shape_vars={"T": {"min": 1, "max": 8}},
        dims={"n": "T"} | {k: v for k, v in sizes.items() if k in data_layout + dims},
    )


def conv_arrays(operator: Operator) -> dict[str, Any]:
    problem = operator.problem
    extents = {k: v if v is not None else 3 for k, v in problem.extents.items()}
    return random_arrays({name: tuple(problem.shape(name, extents)) for name in problem.inputs})


@pytest.mark.parametrize(("data_layout", "kernel_layout"), LAYOUTS)
@pytest.mark.parametrize("path", ["torch-eager", "torch-eager-channels-last"])
def test_a_convolution_in_every_layout(data_layout: str, kernel_layout: str, path: str) -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    given = convolution(data_layout, kernel_layout, ("bias", "relu", {"residual": "R"}))
    arrays = conv_arrays(given)
    result = vendor_paths("torch", given, 2)[path](arrays)()
    assert error(result, reference(given.problem, arrays)) <= SAFE_ERROR


OTHERS: dict[str, dict[str, Any]] = {
    "groups": {"options": {"groups": 4}, "c": 20, "i": 5, "o": 24},
    "depthwise": {"options": {"groups": 5}, "i": 1, "o": 5},
    "uneven padding": {"options": {"padding": [0, 1, 2, 1]}},
    "a line of the window": {"options": {"strides": 1, "padding": [0, 1]}, "r": 1},
    "grouped product": {"options": {"strides": 1, "padding": 0, "groups": 5}, "i": 1, "o": 5, "r": 1, "s": 1},
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("layouts", [("nhwc", "ohwi"), ("nchw", "oihw")], ids=str)
def test_other_convolutions(name: str, layouts: tuple[str, str]) -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    given = convolution(*layouts, ("bias",), **OTHERS[name])
    arrays = conv_arrays(given)
    for path in ("torch-eager", "torch-eager-channels-last"):
        result = vendor_paths("torch", given, 2)[path](arrays)()
        assert error(result, reference(given.problem, arrays)) <= SAFE_ERROR


@pytest.mark.parametrize("layouts", [("nwc", "wio"), ("ncw", "oiw")], ids=str)
def test_a_convolution_along_one_axis(layouts: tuple[str, str]) -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    data, kernel = layouts
    given = operator(
        op={
            "conv1d": {
                "stride": 2,
                "padding": [2, 1],
                "groups": 2,
                "data_layout": data.upper(),
                "kernel_layout": kernel.upper(),
            },
            "epilogue": ["bias", {"residual": "R"}],
        },
        tensors={
            "X": {"dims": data, "dtype": "float32"},
            "W": {"dims": kernel.replace("w", "s"), "dtype": "float32", "constant": True},
        },
        shape_vars={"T": {"min": 1, "max": 8}},
        dims={"n": "T", "w": 11, "c": 6, "i": 3, "o": 4, "s": 3},
    )
    arrays = conv_arrays(given)
    paths = vendor_paths("torch", given, 2)
    assert set(paths) == {"torch-eager", "torch-compile-freezing"}
    assert error(paths["torch-eager"](arrays)(), reference(given.problem, arrays)) <= SAFE_ERROR


def test_channels_last_data_is_not_copied_for_the_channels_last_path() -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    from dietcode.bench.torch_paths import torch_paths

    given = convolution("nhwc", "oihw")
    assert set(torch_paths(given)) == {
        "torch-eager",
        "torch-eager-channels-last",
        "torch-compile-freezing",
        "torch-compile-freezing-channels-last",
    }
    form = given.convolution
    sliding = Sliding(2, 1, 1, 1), Sliding(1, 2, 0, 0)
    assert form == Convolution("X", "W", (0, 3, 1, 2), (0, 1, 2, 3), (0, 3, 1, 2), None, sliding, 1)


def test_numpy_has_no_convolution() -> None:
    with pytest.raises(RequestError, match="NumPy has no convolution"):
        vendor_paths("numpy", convolution("nhwc", "oihw"), 2)


EPILOGUES: list[list[Any]] = [
    ["bias", {"gelu": "erf"}],
    ["bias", {"gelu": "tanh"}],
    ["silu", {"scale": 0.125}],
    ["relu", "bias", {"residual": "R"}],
    ["tanh", "bias", "sigmoid"],
    ["bias", {"clip": [-0.5, 6]}, "hardswish", "hardsigmoid"],
]


def gelu_erf(value: Any) -> Any:
    from scipy.special import erf

    return 0.5 * value * (1 + erf(value / np.sqrt(2)))


@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("path", ["numpy", "torch-eager"])
def test_every_epilogue(epilogue: list[Any], path: str) -> None:
    """Against float64 that is written here; operators of stages that cannot be lowered yet count as well."""
    if path != "numpy":
        pytest.importorskip("torch", reason=of_extra("bench"))
    spec = spec_from_data(spec_data("case", op={"einsum": "mk,nk->mn", "epilogue": epilogue}))
    given = Operator(spec, with_tensors(operator().problem, spec.epilogue_tensors))
    arrays = random_arrays({"X": (32, 48), "W": (64, 48), "bias": (64,), "R": (32, 64)})
    arrays = {name: arrays[name] for name in given.inputs}
    value = arrays["X"].astype(np.float64) @ arrays["W"].astype(np.float64).T
    for step in spec.op.epilogue:
        value = by_hand(step.kind, step.value, value, arrays.get(step.tensor or ""))
    result = vendor_paths(path.partition("-")[0], given, 2)[path](arrays)()
    assert np.asarray(result).dtype == np.float32
    assert error(result, value) <= SAFE_ERROR


def with_tensors(problem: Problem, tensors: Mapping[str, str]) -> Problem:
    stages = tuple(Stage("residual", tensor=name) for name in tensors)
    indices = {name: problem.indices[name] for name in "XWY"} | dict(tensors)
    return replace(problem, stages=stages, indices=indices)


def by_hand(kind: str, parameter: Any, value: Any, tensor: Any) -> Any:
    if tensor is not None:
        return value + tensor
    if kind == "scale":
        return value * parameter
    if kind == "relu":
        return np.maximum(value, 0)
    if kind == "clip":
        return np.minimum(np.maximum(value, parameter[0]), parameter[1])
    if kind == "tanh":
        return 2 / (1 + np.exp(-2 * value)) - 1
    if kind in {"silu", "sigmoid"}:
        return (value if kind == "silu" else 1) / (1 + np.exp(-value))
    if kind in {"hardswish", "hardsigmoid"}:
        return (value if kind == "hardswish" else 1) * np.minimum(np.maximum(value + 3, 0), 6) / 6
    if parameter == "tanh":
        return 0.5 * value * (1 + np.tanh(np.sqrt(2 / np.pi) * (value + 0.044715 * value**3)))
    return gelu_erf(value)


def test_a_product_that_is_no_matmul_goes_through_einsum() -> None:
    given = operator(
        op={"einsum": "mk,bnk->mbn", "epilogue": []},
        tensors={"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "bnk", "dtype": "float32"}},
        dims={"m": "T", "k": 5, "n": 6, "b": 2},
    )
    assert matmul_plan(given) is None
    arrays = random_arrays(given.shapes({"T": 4}))
    right = np.einsum("mk,bnk->mbn", arrays["X"].astype(np.float64), arrays["W"].astype(np.float64))
    assert error(vendor_paths("numpy", given, 2)["numpy"](arrays)(), right) <= SAFE_ERROR


def test_other_constants_get_a_module_of_their_own() -> None:
    """A range of hidden sizes has a weight for each of them."""
    pytest.importorskip("torch", reason=of_extra("bench"))
    given = operator(
        shape_vars={"T": {"min": 1, "max": 8}, "H": {"values": [8, 16]}}, dims={"m": "T", "n": "H", "k": 5}
    )
    path = vendor_paths("torch", given, 2)["torch-eager"]
    for hidden in (8, 16, 8):
        shapes = given.shapes({"T": 3, "H": hidden})
        arrays = random_arrays({name: shapes[name] for name in given.inputs})
        assert error(path(arrays)(), reference(given.problem, arrays)) <= SAFE_ERROR


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's, of its own parts
@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")
def test_constants_are_packed_for_onednn() -> None:
    """Without freezing the compiled path would be no more than the eager one, and look beaten."""
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    from torch.profiler import ProfilerActivity, profile

    given = operator(dims={"m": "16*T", "n": 256, "k": 128})
    shapes = given.shapes({"T": 3})
    arrays = random_arrays({name: shapes[name] for name in given.inputs})
    call = vendor_paths("torch", given, 2)["torch-compile-freezing"](arrays)
    assert error(call(), reference(given.problem, arrays)) <= SAFE_ERROR
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    names = {event.key for event in profiler.key_averages()}
    assert not torch.backends.mkldnn.is_available() or "mkldnn::_linear_pointwise" in names
