"""Sizes of a workload at its largest instance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dietcode.workload.dtypes import STORAGE
from dietcode.workload.spec_fields import SpecFields
from dietcode.workload.text import field_path
from dietcode.workload.work import call_flops

Bindings = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Sizes:
    """Each the largest of any instance; floats, which do not wrap around.

    Attributes
    ----------
    extents : dict
        By index.
    elements : dict
        Elements of each operand and output, by the path of its field.
    tensor_bytes : float
        All tensors of one instance together, those of the epilogue too, in bytes.
    flops : float
        As `dietcode.workload.work.call_flops` counts them.
    """

    extents: dict[str, float]
    elements: dict[str, float]
    tensor_bytes: float
    flops: float


def largest_sizes(spec: SpecFields) -> Sizes:
    """Return the sizes of the largest instance of a spec."""
    bindings = _bindings(spec)
    operands = {field_path(["tensors", name]): indices for name, indices in spec.operand_indices.items()}
    outputs = {_path_of(spec, name): indices for name, indices in spec.outputs.items()}
    shapes = {**operands, **outputs}
    elements = {path: _product(spec, indices, bindings) for path, indices in shapes.items()}
    output_bytes, input_bytes = (STORAGE[d].itemsize for d in (spec.output.dtype, spec.operand_dtype))
    others = [_product(spec, indices, bindings) for indices in spec.epilogue_tensors.values()]
    num_bytes = output_bytes * sum(elements[path] for path in outputs) + sum(
        input_bytes * count for count in (*(elements[path] for path in operands), *others)
    )
    flops = call_flops(spec, bindings)
    return Sizes(
        extents={index: float(np.max(_product(spec, index, bindings))) for index in spec.dims_parsed},
        elements={path: float(np.max(count)) for path, count in elements.items()},
        tensor_bytes=float(np.max(num_bytes)),
        flops=float(np.max(flops)),
    )


def _path_of(spec: SpecFields, output: str) -> str:
    return "output" if spec.op.block is None else field_path(["op", "block", "graph", output])


def _bindings(spec: SpecFields) -> Bindings:
    if spec.instances:
        return {
            name: np.array([instance.bindings[name] for instance in spec.instances], dtype=np.int64)
            for name in spec.variables
        }
    return {name: np.array([variable.max]) for name, variable in spec.shape_vars.items()}


def _product(spec: SpecFields, indices: Iterable[str], bindings: Bindings) -> NDArray[np.float64]:
    """Return the product of the extents of `indices` for each binding."""
    extents = [np.asarray(spec.dims_parsed[i].evaluate(bindings), dtype=np.float64) for i in indices]
    return np.asarray(math.prod(extents, start=np.ones(1)))
