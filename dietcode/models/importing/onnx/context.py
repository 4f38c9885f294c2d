"""What a rule sees: the graph that is built, and the node of ONNX that is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, defs, helper, numpy_helper

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph, Value
from dietcode.graph.tensor_type import DTYPES, FLOATS, HALVES, GraphError, TensorType, axis_of
from dietcode.models.importing.builder import F, GraphBuilder, registered
from dietcode.models.importing.onnx.known import Array, Known, as_extents, known

OnnxValue: TypeAlias = str | Known
OnnxResult: TypeAlias = OnnxValue | Sequence[OnnxValue | None] | None
_FAR = 2**31  # a bound of a slice from here on means the end
UNKNOWN_SIZE = "a size that depends on values; allowed: sizes that follow from shapes"
SIZE_ARITHMETIC = (
    "a size by arithmetic that sizes do not have; allowed: whole-number arithmetic without Pow, comparisons "
    "and Where, and Floor, Ceil or Cast of sizes times or divided by constants"
)


def dtype_of(element: int) -> str:
    """Return the name of the dtype that graphs have for one of ONNX's: float32 for half precision.

    Raises
    ------
    GraphError
        Models do not have it.
    """
    try:
        name = str(helper.tensor_dtype_to_np_dtype(element))
    except KeyError:
        name = f"number {element}"
    if name in HALVES:
        return "float32"
    if name not in DTYPES:
        raise GraphError(f"dtype {name}; allowed: {', '.join(DTYPES)} (convert with model.float())")
    return name


def half_of(element: int) -> str | None:
    """Return the name of a dtype of ONNX's where it is of half precision."""
    return {int(TensorProto.FLOAT16): "float16", int(TensorProto.BFLOAT16): "bfloat16"}.get(element)


class OnnxImporter(GraphBuilder):
    """Translates the nodes of a file; rules call its methods.

    Parameters
    ----------
    graph : Graph
        What nodes are added to.
    opset : int
        The version of the file's operators.

    Attributes
    ----------
    values : dict of str to OnnxValue
        By the name that the file has for it.
    weights : dict of str to array
    """

    def __init__(self, graph: Graph, opset: int) -> None:
        super().__init__(graph)
        self.opset = opset
        self.values: dict[str, OnnxValue] = {}
        self.weights: dict[str, Array] = {}

    def add_weight(self, name: str, array: Array) -> Known:
        """Add a constant to the weights, under another name where there is a value of this one."""
        own, number = name, 1
        while own in self.graph.types:
            own, number = f"{name}.{number}", number + 1
        found = known(array, weight=own)
        self.graph.add_weight(own, TensorType(found.dtype, tuple(Extent.of(one) for one in array.shape)))
        self.weights[own] = found.array
        return found

    def tensor(self, value: OnnxValue | None) -> str:
        """Return a value as a tensor of the graph."""
        if isinstance(value, str):
            return value
        if value is None:
            raise GraphError("an operand is missing; allowed: a tensor")
        if value.weight:
            return value.weight
        if value.is_constant:
            return self._constant(value.array)
        pieces = [self._size(one, value.dtype) for one in value.array.flat]
        flat = pieces[0] if len(pieces) == 1 else self.add("concat", *pieces, axis=0)
        flat = flat if value.divisor == 1 else self.add("div", flat, float(value.divisor))
        return self.reshape(flat, value.array.shape)

    def _constant(self, array: Array) -> str:
        first = array.flat[0].item() if array.size else 0
        if array.size <= 1 or bool((array == first).all()):
            return self.add("full", shape=array.shape, value=first, dtype=str(array.dtype))
        return self.tensor(self.add_weight("constant", array))

    def follows_from_shapes(self, value: OnnxValue | None) -> bool:
        """Whether no input's elements are needed to compute a value."""
        found, seen = [value], set[str]()
        while found:
            one = found.pop()
            if not isinstance(one, str) or one in seen:
                continue
            seen.add(one)
            if one in self.graph.weights:
                continue
            node = self.producer(one)
            if node is None or "size" in node.attributes or node.graphs:
                return False
            found += [operand for operand in node.operands if isinstance(operand, str)]
        return True

    def size_problem(self, value: OnnxValue | None) -> str:
        """Return why a value is no size."""
        return SIZE_ARITHMETIC if self.follows_from_shapes(value) else UNKNOWN_SIZE

    def new_size(self, most: Extent) -> Extent:
        """Return a dimension that a node sets, between 0 and an extent."""
        number = 0
        while f"u{number}" in self.graph.ranges:
            number += 1
        name = f"u{number}"
        self.graph.ranges[name] = (0, max(0, most.bounds(self.graph.ranges)[1]))
        self.graph.sizes[name] = most
        return Extent.of(name)

    def _size(self, extent: Extent, dtype: str) -> str:
        if extent.is_constant:
            return self.add("full", shape=(1,), value=extent.constant, dtype=dtype)
        return self.reshape(self.cast(self.add("extent", value=extent), dtype), (1,))

    def dtype(self, value: OnnxValue | None) -> str:
        """Return the dtype of a value."""
        return value.dtype if isinstance(value, Known) else self.type(value).dtype

    def shape(self, value: OnnxValue | None) -> tuple[Extent, ...]:
        """Return the shape of a value."""
        if isinstance(value, Known):
            return tuple(Extent.of(one) for one in value.array.shape)
        return self.type(value).shape

    def declared_type(self, name: str) -> TypeProto:
        """Return the type of a value as a file declares it; without content where `name` is empty."""
        if not name:
            return TypeProto()
        value = self.values[name]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype(value)))
        shape = [one.constant if one.is_constant else str(one) for one in self.shape(value)]
        return helper.make_tensor_type_proto(element, shape)

    def constant_shape(self, value: OnnxValue | None, first: int = 0) -> list[int]:
        """Return the extents of a value from an axis on, which have to be constant."""
        shape = self.shape(value)
        if not all(one.is_constant for one in shape[first:]):
            raise GraphError(
                f"{self.dtype(value)}[{', '.join(map(str, shape))}]; allowed: constant sizes"
                + (f" from axis {first} on" if first else "")
            )
        return [one.constant for one in shape[first:]]

    def operand(self, value: OnnxValue | None, rank: int) -> Value:
        """Return a value as an operand of functions of elements: a constant of one element is a number.

        Parameters
        ----------
        value : OnnxValue
        rank : int
            Of the other operands; a number has no axes to add to theirs.
        """
        if not isinstance(value, Known) or not value.is_constant or value.dtype == "bool":
            return self.tensor(value)
        if value.array.size == 1 and value.array.ndim <= rank:
            number: int | float = value.array.item()
            return number
        return self.tensor(value)

    def operands(self, values: Sequence[OnnxValue | None]) -> list[Value]:
        """Return operands of one function of elements, of which one at least is a tensor."""
        ranks = [self.type(one).rank for one in values if isinstance(one, str)]
        if not ranks:
            return [self.tensor(values[0]), *(self.tensor(one) for one in values[1:])]
        return [self.operand(one, max(ranks)) for one in values]


class OnnxNode:
    """One node of a file, as a rule reads it.

    Parameters
    ----------
    m : OnnxImporter
    proto : onnx.NodeProto

    Attributes
    ----------
    values : list of OnnxValue or None
        The operands; None for one that is left out.
    """

    def __init__(self, m: OnnxImporter, proto: NodeProto) -> None:
        self._m, self.proto = m, proto
        self._values: list[OnnxValue | None] = [m.values[name] if name else None for name in proto.input]
        self._attributes = {one.name: one for one in proto.attribute}
        self._read: set[str | int] = set()  # attributes and operands that the rule has looked at

    @property
    def values(self) -> list[OnnxValue | None]:
        """All operands."""
        self._read.update(range(len(self._values)))
        return self._values

    @property
    def num_results(self) -> int:
        """Number of results that have a name."""
        return len(self.proto.output)

    def is_read(self, number: int) -> bool:
        """Whether a result has a name."""
        return number < len(self.proto.output) and bool(self.proto.output[number])

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute: a number, a text, a list or an array."""
        self._read.add(name)
        found = self._attributes.get(name)
        if found is None:
            return default
        return self._content(found)

    def _content(self, found: AttributeProto) -> Any:
        if found.type == AttributeProto.TENSOR:
            return numpy_helper.to_array(found.t)
        value = helper.get_attribute_value(found)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if not hasattr(value, "__len__") or isinstance(value, str):
            return value
        return [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in value]

    def refuse_others(self, **allowed: Any) -> None:
        """Refuse attributes that have another value than the one that is known."""
        for name, value in allowed.items():
            given = self.attribute(name, value)
            if given != value:
                raise GraphError(f"{name} {given}; allowed: {value}")

    def refuse_unread(self) -> None:
        """Refuse what the rule has not looked at: newer versions of an operator have more of it."""
        word, opset = self.proto.op_type, self._m.opset
        for name, found in self._attributes.items():
            if name in self._read:
                continue
            known = defs.get_schema(word, opset).attributes.get(name) if defs.has(word, opset) else None
            usual = self._content(known.default_value) if known and known.default_value.type else None
            given = self._content(found)
            if given != usual:
                raise GraphError(f"{name} {given}; allowed: {'without' if usual is None else usual}")
        for number, value in enumerate(self._values):
            if value is not None and number not in self._read:
                raise GraphError(f"operand {number}; allowed: without")

    def ignore(self, *names: str) -> None:
        """Note attributes that change no result here."""
        self._read.update(names)

    def value(self, number: int) -> OnnxValue | None:
        """Return an operand; None where it is left out."""
        self._read.add(number)
        return self._values[number] if number < len(self._values) else None

    def tensor(self, number: int) -> str:
        """Return an operand as a tensor."""
        return self._m.tensor(self.value(number))

    def optional(self, number: int) -> str | None:
        """Return an operand as a tensor, or None where it is left out."""
        value = self.value(number)
        return None if value is None else self._m.tensor(value)

    def extents(self, number: int) -> tuple[Extent, ...]:
        """Return an operand that is sizes."""
        value = self.value(number)
        if isinstance(value, Known) and value.dtype in FLOATS and value.is_constant:
            fractions = value.array[value.array != np.round(value.array)]
            if fractions.size:
                raise GraphError(f"operand {number}: {fractions[0]}; allowed: whole numbers")
            return tuple(Extent.of(int(one)) for one in value.array.flat)
        if isinstance(value, Known) and value.divisor == 1 and value.dtype != "bool":
            return tuple(as_extents(value.array).flat)
        raise GraphError(self._m.size_problem(value))

    def numbers(self, number: int, default: Any = None) -> Any:
        """Return the elements of an operand that is constant, as a list."""
        value = self.value(number)
        if value is None:
            return default
        if not isinstance(value, Known) or not value.is_constant:
            follows = self._m.follows_from_shapes(value)
            reason = "follows from dynamic sizes" if follows else "depends on values"
            raise GraphError(f"operand {number} {reason}; allowed: a constant")
        return value.array.reshape(-1).tolist()

    def number(self, number: int, default: Any = None) -> Any:
        """Return an operand that is one constant number."""
        found = self.numbers(number, [default])
        if len(found) != 1:
            raise GraphError(f"operand {number}: {len(found)} numbers; allowed: one")
        return found[0]

    def axes(self, number: int, rank: int) -> list[int] | None:
        """Return axes: an operand in newer versions of an operator, an attribute in older ones."""
        given = self.numbers(number, self.attribute("axes"))
        return None if given is None else [axis_of(int(one), rank) for one in given]


OnnxRule: TypeAlias = Callable[[OnnxImporter, OnnxNode], OnnxResult]
ONNX_RULES: dict[str, OnnxRule] = {}


def onnx_rule(*names: str, **bound: Any) -> Callable[[F], F]:
    """Register a rule for operators of ONNX, as ``Add``; it returns the value of each result.

    What it takes beside the importer and the node is `bound` by name.
    """
    return registered(ONNX_RULES, names, bound)


def is_far(extent: Extent) -> bool:
    """Whether a bound of a slice means the end, or the beginning."""
    return extent.is_constant and abs(extent.constant) >= _FAR - 1
