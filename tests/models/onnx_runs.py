"""Files of ONNX beside the package's reference functions, and beside eager PyTorch."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph, torch
from needs import of_extra

from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph

onnx: Any = pytest.importorskip("onnx", reason=of_extra("onnx"))
from onnx.reference import ReferenceEvaluator  # noqa: E402

from dietcode.models.importing.onnx.file import load_onnx  # noqa: E402
from dietcode.models.importing.onnx.model import import_onnx  # noqa: E402

Array = np.ndarray[Any, Any]
OPSET = 21


def export_onnx(model: Any, args: Sequence[Any], dynamic: Any, path: Path, *, dynamo: bool) -> Path:
    """Write a model by one of PyTorch's two exporters; dynamic shapes are as torch.export takes them."""
    model = model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(
                *(model, tuple(args), str(path)), dynamo=True, dynamic_shapes=dynamic, verbose=False
            )
            return path
        names = list(inspect.signature(model.forward).parameters)[: len(args)]
        given = zip(names, dynamic, strict=True)
        axes = {name: {axis: dim.__name__ for axis, dim in dims.items()} for name, dims in given if dims}
        options = {"input_names": names, "dynamic_axes": axes, "opset_version": 17}
        torch.onnx.export(model, tuple(args), str(path), dynamo=False, **options)
    return path


def read(path: Path, **ranges: tuple[int, int]) -> tuple[Graph, Mapping[str, Array]]:
    """Return the graph and the weights of a file; the graph is one that a reader of plain data takes."""
    graph, weights = import_onnx(load_onnx(path), path.parent, "model", ranges)
    assert read_graph(graph.to_json()).to_json() == graph.to_json()
    return graph, weights


def model_of_nodes(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[Any]]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    **options: Any,
) -> Any:
    """Return a model.

    Parameters
    ----------
    nodes : sequence of onnx.NodeProto
    inputs : mapping of str to (str, sequence)
        The dtype and the shape of each, with names of dimensions.
    outputs : sequence of str
    constants : mapping of str to array, optional
    **options
        Of ``onnx.helper.make_model``.
    """
    helper, element = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [
            helper.make_tensor_value_info(name, element(np.dtype(dtype)), shape)
            for name, (dtype, shape) in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    options.setdefault("opset_imports", [helper.make_opsetid("", OPSET)])
    return helper.make_model(graph, **options)


def import_model(model: Any, **ranges: tuple[int, int]) -> tuple[Graph, Mapping[str, Array]]:
    """Return the graph and the weights of a model that is no file."""
    return import_onnx(model, Path(), "model", ranges)


def assert_as_reference(model: Any, calls: Sequence[Mapping[str, Array]], **ranges: tuple[int, int]) -> Graph:
    """Compare a model with the reference functions: equal dtypes and shapes, 1e-5 of the largest element."""
    graph, weights = import_model(model, **ranges)
    read_graph(graph.to_json())
    for inputs in calls:
        wanted = ReferenceEvaluator(model).run(None, dict(inputs))
        rights = [np.asarray(one) for one in wanted]
        for own, right in zip(run_graph(graph, weights, inputs), rights, strict=True):
            assert own.dtype == right.dtype and own.shape == right.shape, (own.dtype, own.shape, right.shape)
            if right.dtype.kind == "f":
                scale = max(float(np.abs(right[np.isfinite(right)]).max(initial=0)), 1e-6)
                np.testing.assert_allclose(own, right, rtol=0, atol=1e-5 * scale)
            else:
                np.testing.assert_array_equal(own, right)
    return graph
