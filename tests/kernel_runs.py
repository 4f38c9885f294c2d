"""Compiled models without tuning: PyTorch computes every kernel from its spec, all else is the product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dietcode.bench.operator import Operator
from dietcode.bench.vendor import vendor_paths
from dietcode.graph.graph import Graph
from dietcode.models.grouping import make_units
from dietcode.models.lowering import Lowered, lower
from dietcode.models.rewriting import rewrite
from dietcode.runtime.models.executable import read_executable
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.models.loading import loaded_constants
from dietcode.runtime.models.model import Model
from dietcode.workload.parse import spec_from_data

Array = np.ndarray[Any, Any]


def lowered(graph: Graph) -> Lowered:
    """Return the executable of a graph."""
    graph = rewrite(graph)
    return lower(graph, make_units(graph))


def model_of(made: Lowered, weights: Mapping[str, Array]) -> Model:
    """Return a model that can be called."""
    executable = read_executable(made.description)
    operators = {
        digest: Operator.of_spec(spec_from_data({"name": "part", **spec}))
        for digest, spec in made.specs.items()
    }
    run = {digest: computed_kernel(operator) for digest, operator in operators.items()}
    orders = {
        digest: (list(operator.inputs), list(operator.spec.variables))
        for digest, operator in operators.items()
    }
    constants = loaded_constants(executable, {name: weights[name] for name in executable.weights})
    kernels = Kernels(run, orders, {}, constants)
    return Model(None, {}, executable, kernels, kernels)  # type: ignore[arg-type]


def computed_kernel(operator: Operator) -> Callable[..., None]:
    """Return a function that is called as a library's is, and computes by PyTorch."""
    names, outputs = list(operator.inputs), list(operator.problem.outputs)
    (bind, *_) = vendor_paths("torch", operator, 1).values()

    def run(*arguments: Any) -> None:
        arrays = {name: np.array(one) for name, one in zip(names, arguments, strict=False)}
        given, values = arguments[len(names) :], arguments[len(names) + len(outputs) :]
        binding = dict(zip(operator.spec.variables, values, strict=True))
        shapes = operator.shapes(binding)
        for name, array in arrays.items():
            assert array.shape == shapes[name], f"{name}: {array.shape}; the spec says {shapes[name]}"
        for node in getattr(operator.problem, "nodes", {}).values():
            if node.operator == "gather":  # of a position behind the table, a kernel reads the last row
                table, index = node.operands
                beyond = int(arrays[index].max(initial=0)) + 1 - len(arrays[table])
                arrays[table] = np.concatenate([arrays[table], arrays[table][-1:].repeat(max(0, beyond), 0)])
        results = bind(arrays)()
        for name, out, one in zip(outputs, given, results if len(outputs) > 1 else (results,), strict=False):
            assert out.shape == shapes[name], f"{name}: {out.shape}; the spec says {shapes[name]}"
            np.copyto(out, np.asarray(one.detach()))

    return run
