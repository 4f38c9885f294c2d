"""Models beside eager PyTorch: graphs interpreted by the functions of the host, node by node."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from needs import of_extra

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph, Node
from dietcode.graph.signature import built_output, flatten_arguments
from dietcode.models.importing.exported import Weights, import_exported
from dietcode.runtime.host_operators import HOST

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
Array = np.ndarray[Any, Any]


def _binding(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Return the value of each dimension, from axes that follow from one alone."""
    found: dict[str, int] = {}
    for name, type_ in graph.inputs.items():
        for extent, size in zip(type_.shape, inputs[name].shape, strict=True):
            if len(extent.variables) == 1:
                (own,) = extent.variables
                value = next(k for k in range(5000) if extent.evaluate({own: k}) == size)
                assert found.setdefault(own, value) == value
    return found


def _evaluated(value: Any, binding: Mapping[str, int]) -> Any:
    if isinstance(value, Extent):
        return value.evaluate(binding)
    return tuple(_evaluated(one, binding) for one in value) if isinstance(value, tuple) else value


def run_graph(graph: Graph, weights: Weights, inputs: Mapping[str, Array]) -> list[Array]:
    """Return the outputs; every value has to have the dtype and the shape that was inferred."""
    return _run_body(graph, {**weights, **inputs}, _binding(graph, inputs))


def _computed(node: Node, operands: list[Any], binding: dict[str, int]) -> Sequence[Array]:
    given = {key: value for key, value in node.attributes.items() if key != "size"}
    results = HOST[node.operator](operands, {key: _evaluated(one, binding) for key, one in given.items()})
    if "size" in node.attributes:
        count = int(results[0]) if node.operator == "size" else len(results[0])
        for name in node.attributes["size"].variables - binding.keys():
            binding[name] = count
        assert node.attributes["size"].evaluate(binding) == count
    return results


def _run_flow(node: Node, operands: list[Any], binding: Mapping[str, int]) -> list[Array]:
    """Return the results of an operator of control flow."""

    def run(word: str, given: Sequence[Array]) -> list[Array]:
        graph = node.graphs[word]
        return _run_body(graph, dict(zip(graph.inputs, given, strict=True)), dict(binding))

    if node.operator == "cond":
        return run("then" if operands[0] else "else", operands[1:])
    num_carried = node.attributes["carried"]
    state, rest = operands[:num_carried], operands[num_carried:]
    if node.operator == "while_loop":
        while run("condition", [*state, *rest])[0]:
            state = run("body", [*state, *rest])
        return state
    each, rest = rest[: node.attributes["each"]], rest[node.attributes["each"] :]
    stacked = []
    for position in range(len(each[0])):
        found = run("body", [*state, *(np.asarray(one[position]) for one in each), *rest])
        state = found[:num_carried]
        stacked.append(found[num_carried:])
    types = node.graphs["body"].output_types[num_carried:]
    return [
        *state,
        *(
            np.stack(one) if one else np.empty((0, *_evaluated(type_.shape, binding)), type_.dtype)
            for one, type_ in zip(
                zip(*stacked, strict=True) if stacked else [()] * len(types), types, strict=True
            )
        ),
    ]


def _run_body(graph: Graph, values: dict[str, Array], binding: dict[str, int]) -> list[Array]:
    def check(name: str) -> None:
        own = graph.types[name]
        assert isinstance(values[name], np.ndarray)
        assert str(values[name].dtype) == own.dtype, f"{name}: {values[name].dtype}; inferred: {own}"
        assert values[name].shape == _evaluated(own.shape, binding), f"{name}: {values[name].shape} for {own}"

    for name in (*graph.inputs, *graph.weights):
        check(name)
    for node in graph.nodes:
        operands = [values[one] if isinstance(one, str) else one for one in node.operands]
        if node.graphs:
            results: Sequence[Array] = _run_flow(node, operands, binding)
        else:
            results = _computed(node, operands, binding)
        for name, result in zip(node.results, results, strict=True):
            values[name] = result
            check(name)
    return [values[name] for name in graph.outputs]


def exported(module: Any, args: tuple[Any, ...], dynamic_shapes: Any = None, **options: Any) -> Any:
    """Return the program of a module in inference mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(
            module.eval(),
            args,
            dynamic_shapes=dynamic_shapes,
            prefer_deferred_runtime_asserts_over_guards=True,
            **options,
        )


def imported(program: Any, **ranges: tuple[int, int]) -> tuple[Graph, Weights]:
    """Return the graph and the weights of a program."""
    return import_exported(program, "model", ranges)


def assert_same(
    module: Any, graph: Graph, weights: Weights, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> None:
    """Compare a graph with eager PyTorch: equal dtypes, shapes and trees, and 1e-4 of the largest element."""
    kwargs = kwargs or {}
    with torch.no_grad():
        wanted = module(*args, **kwargs)
    given = flatten_arguments(graph.signature, args, kwargs)
    inputs = {name: np.asarray(value) for name, value in given.items()}
    leaves, tree = torch.utils._pytree.tree_flatten(wanted)
    nothing = [one is None for one in leaves]
    leaves = [one for one in leaves if one is not None]
    found = run_graph(graph, weights, inputs)
    assert len(found) == len(leaves)
    for number, (own, right) in enumerate(zip(found, leaves, strict=True)):
        label = f"output {number}"
        assert str(right.dtype) == f"torch.{own.dtype}", label
        assert own.shape == tuple(right.shape), label
        if not own.size:
            continue
        if own.dtype.kind != "f":
            assert np.array_equal(own, right.numpy()), label
            continue
        finite = right[torch.isfinite(right)].abs()
        scale = float(finite.max()) if finite.numel() else 1.0
        np.testing.assert_allclose(own, right.numpy(), rtol=0, atol=1e-4 * max(scale, 1e-6), err_msg=label)
    rebuilt, own_tree = torch.utils._pytree.tree_flatten(built_output(graph.signature["output"], iter(found)))
    assert own_tree == tree and [one is None for one in rebuilt] == nothing


class Functions(torch.nn.Module):
    """Several functions of the same tensors."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *args: Any) -> tuple[Any, ...]:
        """Return the results of all."""
        return tuple(function(*args) for function in self.functions)


def assert_functions(
    functions: Sequence[Callable[..., Any]],
    tensors: Callable[[int], tuple[Any, ...]],
    dynamic: Sequence[Mapping[int, Any]],
    sizes: Sequence[int] = (1, 3, 8, 13),
) -> Graph:
    """Compare functions with eager PyTorch at several sizes of one dynamic dimension.

    Parameters
    ----------
    functions : sequence of callable
    tensors : callable
        Returns the arguments of all functions for a size.
    dynamic : sequence of mapping of int to Dim
        The axes of each argument that have the size.
    sizes : sequence of int
    """
    module = Functions(functions)
    graph, weights = imported(exported(module, tensors(9), (tuple(dynamic),)))
    for size in sizes:
        assert_same(module, graph, weights, tensors(size))
    return graph
