"""A file of ONNX as anybody may have written it: its model, and its weights from the model's own folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
    inliner,
    numpy_helper,
    version_converter,
)
from onnx.defs import onnx_opset_version

from dietcode.errors import ModelError
from dietcode.graph.reading import MAX_NODES
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.onnx.context import ONNX_RULES, dtype_of
from dietcode.models.importing.onnx.known import Array
from dietcode.workload.text import clip, one_line

OLDEST_OPSET = 7  # before it operands were not broadcast as today
_KNOWN_OPSET = 13  # before it some operators have other forms; such files are converted
_MOST_BYTES = 2**31  # protobuf has no longer messages; larger models keep their weights apart
_MAX_NODES = 5 * MAX_NODES  # exporters write several for a node of a graph, for its shapes
_MAX_CALLS = 64  # of functions within functions
_COMPOSED_NODES = 32  # of a standard operator whose function depends on its operands
STANDARD = ("", "ai.onnx")
_OWN_DOMAIN = "dietcode"


def load_onnx(path: Path) -> ModelProto:
    """Return the model of a file, functions put in place of their calls; weights that lie apart stay there.

    Raises
    ------
    ModelError
        The file cannot be read as one, or its operators are older than those that are known.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ModelError(
            f"{path}: more than 2 GiB; allowed: weights apart, as of onnx.save(…, save_as_external_data=True)"
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
        if not model.graph.node or not model.opset_import:
            raise ValueError("it has no operators")
    except Exception as error:
        reason = one_line(str(error) or type(error).__name__, 120)
        raise ModelError(f"{path}: no model of ONNX: {reason}; write it by torch.onnx.export") from None
    opset = opset_of(model)
    if not OLDEST_OPSET <= opset <= onnx_opset_version():
        raise ModelError(
            f"{path}: operators of version {opset}; allowed: {OLDEST_OPSET} to {onnx_opset_version()} "
            "(export the model again, with opset_version=17)"
        )
    _check_size(model, path)
    if opset < _KNOWN_OPSET:
        model = _converted(model, path)
    try:
        return inlined(model)
    except Exception as error:
        raise ModelError(
            f"{path}: its functions cannot be put in place: {one_line(str(error), 120)}"
        ) from None


def _check_size(model: ModelProto, path: Path) -> None:
    """Refuse a model of more nodes than are read, counted before its functions are put in place."""
    functions = {(one.domain, one.name, one.overload): one for one in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}
    opset = opset_of(model)

    def size_of(nodes: Iterable[NodeProto], depth: int = 0) -> int:
        if depth > _MAX_CALLS:
            raise ModelError(
                f"{path}: functions that call functions more than {_MAX_CALLS} deep; allowed: as many, "
                "and none that calls itself"
            )
        total = 0
        for node in nodes:
            key = node.domain, node.op_type, node.overload
            if key not in functions:
                total += _size_of_standard(node, opset)
                continue
            if key not in sizes:
                sizes[key] = size_of(_nodes(functions[key]), depth + 1)
            total += sizes[key]
        return total

    total = size_of(_nodes(model.graph))
    if total > _MAX_NODES:
        raise ModelError(
            f"{path}: {total if total < 10**12 else 'over 10**12'} nodes, those of functions where they are "
            f"called; allowed: {_MAX_NODES} (export parts of the model)"
        )


def _size_of_standard(node: NodeProto, opset: int) -> int:
    """Return how many nodes an operator becomes."""
    if node.op_type in ONNX_RULES or not is_defined_by_others(node, opset):
        return 1
    schema = onnx.defs.get_schema(node.op_type, opset)
    return len(schema.function_body.node) if schema.has_function else _COMPOSED_NODES


def _converted(model: ModelProto, path: Path) -> ModelProto:
    """Return a model of older operators with those of the oldest version that has rules."""
    if any(one.data_location == TensorProto.EXTERNAL for one in model.graph.initializer):
        raise ModelError(
            f"{path}: operators of version {opset_of(model)} and weights in other files; allowed: "
            f"version {_KNOWN_OPSET} with such, or weights within the file"
        )
    if opset_of(model) < 9 and any(node.op_type == "Scan" for node in model.graph.node):
        # Which had batches; the converter takes their axis from the inputs.
        raise ModelError(f"{path}: Scan of version 8; allowed: from 9 (export the model again)")
    try:
        return version_converter.convert_version(model, _KNOWN_OPSET)
    except Exception as error:
        raise ModelError(
            f"{path}: operators of version {opset_of(model)} that cannot be converted: "
            f"{one_line(str(error), 120)}; export the model again, with opset_version=17"
        ) from None


def opset_of(model: ModelProto) -> int:
    """Return the version of the standard operators."""
    return max((int(one.version) for one in model.opset_import if one.domain in STANDARD), default=0)


def inlined(model: ModelProto) -> ModelProto:
    """Return a model without functions of its own."""
    return inliner.inline_local_functions(model) if model.functions else model


def _nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph or a function, and of graphs within it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(inner)


def is_defined_by_others(node: NodeProto, opset: int) -> bool:
    """Whether the standard says what an operator does by others."""
    if node.domain not in STANDARD or not onnx.defs.has(node.op_type, opset):
        return False
    return bool(_function_version(onnx.defs.get_schema(node.op_type, opset), opset))


def _function_version(schema: onnx.defs.OpSchema, opset: int) -> int:
    versions = (*schema.function_opset_versions, *schema.context_dependent_function_opset_versions)
    return max((one for one in versions if one <= opset), default=0)


def defining_graph(node: NodeProto, opset: int, types: Sequence[TypeProto]) -> tuple[GraphProto, int]:
    """Return the graph by which the standard defines an operator, and the version of the graph's operators.

    Its operands and results have the node's names for them.

    Parameters
    ----------
    node : onnx.NodeProto
    opset : int
    types : sequence of onnx.TypeProto
        Of the operands; empty for one that is left out.
    """
    schema = onnx.defs.get_schema(node.op_type, opset)
    version = _function_version(schema, opset)
    if len(node.input) < schema.min_input:
        raise ValueError(f"{len(node.input)} operands; allowed: from {schema.min_input}")
    call = NodeProto()
    call.CopyFrom(node)
    given = {one.name for one in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.type:
            call.attribute.append(attribute.default_value)
    if version in schema.function_opset_versions:
        body = schema.get_function_with_opset_version(version)
    else:
        serialized = [one.SerializeToString() for one in types]
        body = schema.get_context_dependent_function_with_opset_version(
            version, call.SerializeToString(), serialized
        )
    function = FunctionProto.FromString(body)
    call.domain = function.domain = _OWN_DOMAIN
    infos = [helper.make_value_info(name, one) for name, one in zip(node.input, types, strict=True) if name]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    opsets = [helper.make_opsetid("", version), helper.make_opsetid(_OWN_DOMAIN, 1)]
    graph = helper.make_graph([call], "function", infos, results)
    model = helper.make_model(graph, functions=[function], opset_imports=opsets)
    return inliner.inline_local_functions(model).graph, version


def array_of(tensor: TensorProto, folder: Path) -> Array:
    """Return the elements of a tensor.

    Raises
    ------
    GraphError
        Models do not have its dtype, or what it says of its data is not so.
    """
    dtype = dtype_of(tensor.data_type)
    if any(one < 0 for one in tensor.dims):
        raise GraphError(f"shape {list(tensor.dims)}; allowed: extents from 0")
    try:
        if tensor.data_location == TensorProto.EXTERNAL:
            stored = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            return _external(tensor, stored, folder).astype(dtype, copy=False)
        array = numpy_helper.to_array(tensor)
        return np.asarray(array.astype(dtype, copy=False), order="C")
    except (ValueError, TypeError, OSError) as error:
        raise GraphError(one_line(str(error), 160)) from None


def _external(tensor: TensorProto, dtype: np.dtype[Any], folder: Path) -> Array:
    """Read data that lie in a file of their own, which has to be in the model's folder."""
    said: dict[str, Any] = {one.key: one.value for one in tensor.external_data}
    location = str(said.get("location", ""))
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder.resolve()):
        raise GraphError(f"data in {clip(location)}; allowed: a file in the folder of the model")
    if not path.is_file():
        raise GraphError(f"data in {clip(location)}, which is not there; copy it beside the model")
    count = math.prod(tensor.dims)
    num_bytes = count * dtype.itemsize
    offset, length = int(said.get("offset", 0)), int(said.get("length", num_bytes))
    if offset < 0 or length != num_bytes or offset + num_bytes > path.stat().st_size:
        raise GraphError(f"{num_bytes} bytes at {offset} of {clip(location)}; allowed: what the file has")
    if count == 0:
        return np.zeros(tuple(tensor.dims), dtype)
    little = np.dtype(f"<u{dtype.itemsize}")  # the bits; not all dtypes can be read from files
    whole = np.fromfile(path, little, count, offset=offset).astype(little.newbyteorder("="), copy=False)
    return np.asarray(whole.view(dtype).reshape(tuple(tensor.dims)))


def metadata(node: Any, key: str) -> str:
    """Return what an exporter noted of a node; '' where it did not."""
    return next((str(one.value) for one in node.metadata_props if one.key == key), "")


def attribute_of(node: Any, name: str) -> Any:
    """Return an attribute of a node, as a sub-graph.

    Raises
    ------
    GraphError
        The node lacks it.
    """
    for one in node.attribute:
        if one.name == name:
            return helper.get_attribute_value(one)
    raise GraphError(f"without {name}; allowed: a node that has it")
