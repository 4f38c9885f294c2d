"""The vendor's kernels for the same operator: PyTorch eager, oneDNN with a prepacked weight, NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.errors import RequestError

Call = Callable[[], Any]


@dataclass(frozen=True)
class Operator:
    """What a manifest says of the operator, enough to run it elsewhere.

    Attributes
    ----------
    inputs : dict of str to str
        Index letters of each input, operands first.
    output : str
        Index letters of the output.
    constants : tuple of str
        Inputs that stay the same from call to call.
    epilogue : tuple
        Steps of the spec.
    """

    inputs: dict[str, str]
    output: str
    constants: tuple[str, ...]
    epilogue: tuple[Any, ...]

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Operator:
        """From a library's manifest."""
        workload = manifest["workload"]
        return cls(
            {name: manifest["inputs"][name]["dims"] for name in manifest["argument_order"]},
            manifest["output"]["dims"],
            tuple(name for name, facts in workload["tensors"].items() if facts["constant"]),
            tuple(workload["op"]["epilogue"]),
        )

    @property
    def operands(self) -> tuple[str, str]:
        """The two tensors of the contraction."""
        first, second, *_ = self.inputs
        return first, second

    @property
    def equation(self) -> str:
        """As ``einsum`` takes it."""
        first, second = self.operands
        return f"{self.inputs[first]},{self.inputs[second]}->{self.output}"


def reference(operator: Operator, arrays: Mapping[str, Any]) -> Any:
    """The result in float64."""
    first, second = operator.operands
    value = np.einsum(
        operator.equation,
        arrays[first].astype(np.float64),
        arrays[second].astype(np.float64),
        optimize=True,
    )
    return _finish(operator, value, arrays, lambda x: np.maximum(x, 0))


def _finish(operator: Operator, value: Any, arrays: Mapping[str, Any], relu: Callable[[Any], Any]) -> Any:
    for step in operator.epilogue:
        if step == "bias":
            value = value + arrays["bias"]
        elif step == "relu":
            value = relu(value)
        elif "residual" in step:
            value = value + arrays[step["residual"]]
        else:
            value = value * step["scale"]
    return value


def numpy_paths(operator: Operator, num_threads: int) -> dict[str, Callable[[Mapping[str, Any]], Call]]:
    """NumPy with the BLAS it was built with."""
    del num_threads  # OpenBLAS takes every core, as the library does
    first, second = operator.operands
    plan = _matmul_plan(operator)

    def bind(arrays: Mapping[str, Any]) -> Call:
        def run() -> Any:
            a, b = arrays[first], arrays[second]
            if plan is None:
                value = np.einsum(operator.equation, a, b, optimize=True)
            else:
                value = np.matmul(a, np.swapaxes(b, -1, -2) if plan else b)
            return _finish(operator, value, arrays, lambda x: np.maximum(x, 0))

        return run

    return {"numpy": bind}


def _matmul_plan(operator: Operator) -> bool | None:
    """Whether ``matmul`` needs its second operand transposed; None where it is no plain matmul."""
    first, second = (operator.inputs[name] for name in operator.operands)
    if len(first) < 2 or first[:-2] != second[:-2] or operator.output[:-2] != first[:-2]:
        return None
    rows, reduction = first[-2], first[-1]
    for transposed, column, inner in ((True, second[-2], second[-1]), (False, second[-1], second[-2])):
        if inner == reduction and operator.output[-2:] == rows + column:
            return transposed
    return None


def torch_paths(operator: Operator, num_threads: int) -> dict[str, Callable[[Mapping[str, Any]], Call]]:
    """PyTorch eager, and ``torch.compile(dynamic=True)`` with freezing, which prepacks constants for oneDNN.

    Raises
    ------
    RequestError
        PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise RequestError("--vs torch: PyTorch is not installed; pip install 'dietcode[bench]'") from error
    torch.set_num_threads(num_threads)
    import torch._inductor.config as inductor

    inductor.freezing = True
    plan, order = _matmul_plan(operator), list(operator.inputs)
    first, second = operator.operands
    is_linear = plan is True and len(operator.inputs[first]) == 2 and "bias" not in operator.inputs

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, constants: Mapping[str, Any]) -> None:
            super().__init__()
            for name, value in constants.items():
                self.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))

        def forward(self, *varying: Any) -> Any:
            values = dict(zip((n for n in order if n not in operator.constants), varying, strict=True))
            values |= {name: getattr(self, name) for name in operator.constants}
            a, b = values[first], values[second]
            if is_linear:
                value = torch.nn.functional.linear(a, b)
            elif plan is None:
                value = torch.einsum(operator.equation, a, b)
            else:
                value = torch.matmul(a, b.transpose(-1, -2) if plan else b)
            return _finish(operator, value, values, torch.relu)

    modules: dict[str, Any] = {}

    def binder(compiled: bool) -> Callable[[Mapping[str, Any]], Call]:
        def bind(arrays: Mapping[str, Any]) -> Call:
            tensors = {name: torch.from_numpy(arrays[name]) for name in order}
            key = f"{compiled}"
            if key not in modules:
                module = Module({name: tensors[name] for name in operator.constants}).eval()
                modules[key] = torch.compile(module, dynamic=True) if compiled else module
            varying = [tensors[name] for name in order if name not in operator.constants]

            def run() -> Any:
                with torch.no_grad():
                    return modules[key](*varying)

            return run

        return bind

    return {"torch-eager": binder(False), "torch-compile-freezing": binder(True)}


PATHS = {"numpy": numpy_paths, "torch": torch_paths}


def vendor_paths(name: str, operator: Operator, num_threads: int) -> Any:
    """Paths of one vendor by name.

    Raises
    ------
    RequestError
        Unknown, or not installed.
    """
    if name not in PATHS:
        raise RequestError(f"--vs: {name!r}; allowed: {', '.join(PATHS)}")
    return PATHS[name](operator, num_threads)
