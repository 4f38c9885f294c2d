"""The graph of a model of ONNX, node by node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent, parse_extent
from dietcode.graph.graph import Graph
from dietcode.graph.signature import halves_of
from dietcode.graph.tensor_type import GraphError, TensorType
from dietcode.models.importing.onnx import (  # noqa: F401 - their rules
    einsum,
    layers,
    layout,
    pointwise,
    quantized,
    recurrent,
    resize,
    sizes,
    slices,
)
from dietcode.models.importing.onnx.context import (
    ONNX_RULES,
    OnnxImporter,
    OnnxNode,
    OnnxResult,
    OnnxValue,
    dtype_of,
    half_of,
)
from dietcode.models.importing.onnx.file import (
    STANDARD,
    array_of,
    defining_graph,
    is_defined_by_others,
    metadata,
    opset_of,
)
from dietcode.models.importing.onnx.flow import ONNX_FLOW
from dietcode.models.importing.onnx.folding import computed
from dietcode.models.importing.onnx.known import Array, Known
from dietcode.models.importing.refusals import listed, unknown_range
from dietcode.models.sources import source_in
from dietcode.workload.text import clip, one_line

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]")
_NAMED = 3  # nodes of one problem that are named
Ranges = Mapping[str, tuple[int, int]]


def import_onnx(model: ModelProto, folder: Path, name: str, ranges: Ranges) -> tuple[Graph, dict[str, Array]]:
    """Return a graph and its weights.

    Parameters
    ----------
    model : onnx.ModelProto
        As `dietcode.models.importing.onnx.file.load_onnx` returns it.
    folder : Path
        Where the model lies, with the weights that it keeps apart.
    name : str
        Of the model.
    ranges : mapping of str to (int, int)
        Of dimensions, by name or by ``input.axis``. ONNX has names of dimensions alone, so that each needs a
        range.

    Raises
    ------
    ModelError
        The model has what cannot be compiled; all of it is named.
    """
    own = {one.name for one in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in own]
    types, found = _typed_inputs(inputs, ranges)
    reader = _Reader(OnnxImporter(Graph(name, found), opset_of(model)), folder)
    m = reader.importer
    for key, type_ in types.items():
        m.values[key] = m.graph.add_input(key, type_)
    reader.read(model.graph)
    reader.finish()
    for one in model.graph.output:
        m.graph.outputs.append(_output(m, one))
    star: Any = ["*"] * len(m.graph.outputs)
    m.graph.signature = {
        "positional": list(types),
        "keyword": {},
        "output": star[0] if len(star) == 1 else {"tuple": star},
        **_halves(inputs, model.graph.output),
    }
    m.graph.without_unused()
    return m.graph, {key: value for key, value in m.weights.items() if key in m.graph.weights}


def _halves(inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """Return what the file has in half precision, as `dietcode.graph.signature` does."""
    own = {one.name: half_of(one.type.tensor_type.elem_type) for one in inputs}
    results = [half_of(one.type.tensor_type.elem_type) for one in outputs]
    return halves_of({name: dtype for name, dtype in own.items() if dtype}, results)


def _output(m: OnnxImporter, declared: Any) -> str:
    """Return the value of an output, compared with what the file says of it, so that a wrong rule shows."""
    name = declared.name
    if name not in m.values:
        raise ModelError(f"{one_line(name, 60)}: an output that nothing computes")
    value = m.tensor(m.values[name])
    type_ = declared.type.tensor_type
    own = m.graph.types[value]
    if type_.elem_type and dtype_of(type_.elem_type) != own.dtype:
        raise ModelError(f"{one_line(name, 60)}: is {own}, where the file says {dtype_of(type_.elem_type)}")
    if type_.HasField("shape") and len(type_.shape.dim) != own.rank:
        raise ModelError(f"{one_line(name, 60)}: is {own}, where the file says {len(type_.shape.dim)} axes")
    return value


def _typed_inputs(
    inputs: Sequence[Any], wanted: Ranges
) -> tuple[dict[str, TensorType], dict[str, tuple[int, int]]]:
    """Return the types of inputs, and the range of each dimension."""
    dims = _Names()
    types: dict[str, TensorType] = {}
    for one in inputs:
        type_ = one.type.tensor_type
        if not one.type.HasField("tensor_type") or not type_.HasField("shape"):
            raise ModelError(
                f"{one_line(one.name, 60)}: an input without a shape; allowed: tensors of known rank"
            )
        try:
            dtype = dtype_of(type_.elem_type)
        except GraphError as error:
            raise ModelError(f"{one_line(one.name, 60)}: {error}") from None
        shape = [dims.extent(f"{one.name}.{axis}", dim) for axis, dim in enumerate(type_.shape.dim)]
        types[one.name] = TensorType(dtype, tuple(shape))
    names = sorted({name for one in types.values() for extent in one.shape for name in extent.variables})
    given = {dims.called.get(key, key): value for key, value in wanted.items()}
    for key in given:
        if key not in names:
            raise unknown_range(key, [*names, *dims.called])
    for key, (low, high) in given.items():
        if low > high:
            raise ModelError(f"--range {key}={low}..{high}: allowed: the least number first")
    missing = [name for name in names if name not in given]
    if missing:
        labels = {own: f" ({label})" for label, own in list(dims.labels.items())[::-1]}
        raise ModelError(
            f"{', '.join(name + labels.get(name, '') for name in missing)}: no range; "
            f"give {' '.join(f'--range {name}=1..512' for name in missing)}"
        )
    return types, {name: given[name] for name in names}


class _Names:
    """Names of dimensions.

    Attributes
    ----------
    called : dict of str to str
        The dimension by the file's text for it, and by ``input.axis``.
    labels : dict of str to str
        The dimension of each ``input.axis``.
    """

    def __init__(self) -> None:
        self.called: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def extent(self, label: str, dim: Any) -> Extent:
        """Return the extent of an axis: a number, a dimension, or as ``2*L`` follows from one."""
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise ModelError(f"{one_line(label, 60)}: extent {dim.dim_value}; allowed: from 0")
            return Extent.of(dim.dim_value)
        text = dim.dim_param or label
        try:
            found = parse_extent(text)
            if found.variables and all(one not in ("min", "max") for one in found.variables):
                self._note(label, str(found))
                return found
        except ValueError:
            pass
        if text not in self._texts:
            plain = _NOT_A_NAME.sub("_", text)[:60]
            plain = plain if re.match(r"[A-Za-z_]", plain) and plain not in ("min", "max") else f"d_{plain}"
            while plain in self._texts.values():
                plain += "_"
            self._texts[text] = plain
        self.called[text] = self._texts[text]
        self._note(label, self._texts[text])
        return Extent.of(self._texts[text])

    def _note(self, label: str, name: str) -> None:
        self.called[label] = self.labels[label] = name


class _RefusedGraphError(Exception):
    """A graph within a node has nodes that are refused."""


class _Reader:
    """Reads the nodes of a graph and of graphs within it, and notes what cannot be compiled."""

    def __init__(self, importer: OnnxImporter, folder: Path) -> None:
        self.importer, self._folder = importer, folder
        self._problems: dict[str, list[str]] = {}
        self._number = 0
        self._within = ""  # the node that stands for the ones that are read

    def read(self, graph: GraphProto) -> None:
        """Add the weights and the nodes of a graph."""
        m = self.importer
        if graph.sparse_initializer:
            self._note("sparse weights; allowed: dense ones", "")
        for one in graph.initializer:
            try:
                array = array_of(one, self._folder)
                m.values[one.name] = m.add_weight(one.name, array)
            except GraphError as error:
                self._note(f"{one_line(one.name, 60)}: {error}", "")
        for node in graph.node:
            self._node(node)

    def finish(self) -> None:
        """Raise `ModelError` where there were problems."""
        if not self._problems:
            return
        texts = []
        for problem, places in self._problems.items():
            named = [one for one in places if one]
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            texts.append(problem + (f" ({', '.join(named[:_NAMED])}{more})" if named else ""))
        raise ModelError(listed(texts))

    def _note(self, problem: str, place: str) -> None:
        places = self._problems.setdefault(problem, [])
        if place not in places:
            places.append(place)

    def _node(self, node: NodeProto) -> None:
        m = self.importer
        self._number += 1
        name = node.name or f"node {self._number}"
        line = source_in(metadata(node, "pkg.torch.onnx.stack_trace"))
        m.source = self._within or line or one_line(name)
        place = self._within or one_line(f"{name}, {line}" if line else name, 120)
        word = node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"
        if word not in ONNX_RULES and word not in ONNX_FLOW and not is_defined_by_others(node, m.opset):
            self._note(f"{one_line(word, 60)}: not known", place)
            return
        missing = [one for one in node.input if one and one not in m.values]
        if missing:
            if not self._problems:  # what depends on a node that was refused says nothing new
                self._note(f"{word}: reads {clip(missing[0])}, which is not there", place)
            return
        try:
            if word in ONNX_FLOW:
                results = self._controlled(node)
            elif word in ONNX_RULES:
                results = self._translated(node)
            else:
                results = self._decomposed(node, place)
        except _RefusedGraphError:
            pass  # its problems are listed
        except GraphError as error:
            self._note(f"{word}: {error}", place)
        except (ValueError, LookupError, TypeError, ArithmeticError, AssertionError) as error:
            self._note(
                f"{word}: operands or attributes that it does not take: {one_line(str(error), 100)}", place
            )
        else:
            for key, value in zip(node.output, results, strict=False):
                if key and value is not None:
                    m.values[key] = value

    def _translated(self, node: NodeProto) -> Sequence[OnnxValue | None]:
        m = self.importer
        values = [m.values[name] if name else None for name in node.input]
        if all(one is None or isinstance(one, Known) for one in values):
            operands = [one if isinstance(one, Known) else None for one in values]
            found = computed(node, operands, m.opset, m.graph.ranges)
            if found is not None:
                return found
        read = OnnxNode(m, node)
        result: OnnxResult = ONNX_RULES[node.op_type](m, read)
        read.refuse_unread()
        return [result] if isinstance(result, str | Known) or result is None else result

    def _decomposed(self, node: NodeProto, place: str) -> Sequence[OnnxValue | None]:
        """Return the results of an operator that the standard defines by others."""
        m = self.importer
        types = [m.declared_type(name) for name in node.input]
        try:
            graph, opset = defining_graph(node, m.opset, types)
        except Exception as error:  # of the package, which says whatever it says
            reason = one_line(str(error) or type(error).__name__, 100)
            raise GraphError(f"not of the form that the standard defines: {reason}") from None
        outer = m.values, m.opset, self._within
        m.values, m.opset = {name: m.values[name] for name in node.input if name}, opset
        self._within = one_line(f"{place}, a part of {node.op_type}", 120)
        try:
            self.read(graph)
            return [m.values.get(name) for name in node.output]
        finally:
            m.values, m.opset, self._within = outer

    def _controlled(self, node: NodeProto) -> Sequence[OnnxValue | None]:
        """Return the results of a branch or a loop."""
        m, known = self.importer, len(self._problems)

        def read(inner: OnnxImporter, graph: GraphProto) -> None:
            self.importer = inner
            try:
                self.read(graph)
            finally:
                self.importer = m
            if len(self._problems) > known:
                raise _RefusedGraphError

        return ONNX_FLOW[node.op_type](m, OnnxNode(m, node), read)
