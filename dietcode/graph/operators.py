"""The operators that a whole model may consist of: the closed list, with the types of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dietcode.graph import flow_inference as flow
from dietcode.graph import inference as rules
from dietcode.graph import position_inference as positions
from dietcode.graph.attributes import (
    REQUIRED,
    GraphAttribute,
    one_of,
    read_count,
    read_dtype,
    read_extent,
    read_flag,
    read_integer,
    read_integers,
    read_number,
    read_pads,
    read_shape,
    read_sub_graph,
    read_text,
)
from dietcode.graph.extent import Extent
from dietcode.graph.inference import Attributes, Operands, Types

LIBRARY_FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erfc", "exp2", "expm1"),
    *("log10", "log1p", "log2", "sinh", "tan", "trunc"),
)
"""Functions of elements that the host alone computes, by its library."""
MANY = 64
MANY_OF_GRAPHS = 4096


@dataclass(frozen=True)
class GraphOperator:
    """One operator of graphs.

    Attributes
    ----------
    least, most : int
        Number of operands.
    infer : callable
        The types of the results, see `dietcode.graph.inference`.
    attributes : mapping of str to GraphAttribute
    """

    least: int
    most: int
    infer: Callable[[Operands, Attributes], Types]
    attributes: Mapping[str, GraphAttribute] = field(default_factory=dict)


def _a(read: Callable[..., object], default: object = REQUIRED) -> GraphAttribute:
    return GraphAttribute(read, default)


_AXIS = {"axis": _a(read_integer)}
_KEEP = {"keep": _a(read_flag, False)}
_AXES = {"axes": _a(read_integers, ()), **_KEEP}
_EPS = {"eps": _a(read_number)}
_WINDOWS = {name: _a(read_integers) for name in ("strides", "dilation")} | {"pads": _a(read_pads)}
_ZERO = Extent()
_GRAPH = _a(read_sub_graph)
_BY = {"by": _a(one_of("set", "add", "mul", "max", "min"), "set")}
_SIZE = {"size": _a(read_extent)}
_WRAPS = {"wraps": _a(read_flag, True)}  # whether positions below 0 count from the end, or are refused


def _unary(*names: str, infer: Callable[[Operands, Attributes], Types]) -> dict[str, GraphOperator]:
    return {name: GraphOperator(1, 1, infer) for name in names}


def _binary(*names: str, infer: Callable[[Operands, Attributes], Types]) -> dict[str, GraphOperator]:
    return {name: GraphOperator(2, 2, infer) for name in names}


GRAPH_OPERATORS: dict[str, GraphOperator] = {
    **_unary("neg", "abs", "sign", "square", "relu", infer=rules.pointwise),
    **_unary(
        *(
            "sqrt",
            "rsqrt",
            "exp",
            "log",
            "tanh",
            "sigmoid",
            "silu",
            "erf",
            "sin",
            "cos",
            "floor",
            "ceil",
            "round",
            *LIBRARY_FUNCTIONS,
        ),
        infer=rules.pointwise_float,
    ),
    "gelu": GraphOperator(1, 1, rules.pointwise_float, {"form": _a(one_of("erf", "tanh"), "erf")}),
    "clip": GraphOperator(
        1, 1, rules.pointwise, {"low": _a(read_number, None), "high": _a(read_number, None)}
    ),
    "not": GraphOperator(1, 1, rules.pointwise_bool),
    "cast": GraphOperator(1, 1, rules.cast, {"dtype": _a(read_dtype)}),
    **_binary(
        "add", "sub", "mul", "maximum", "minimum", "floor_divide", "remainder", "fmod", infer=rules.pointwise
    ),
    **_binary("div", "pow", "atan2", "copysign", "hypot", infer=rules.pointwise_float),
    **{
        name: GraphOperator(2, 2, rules.comparison, {"dtype": _a(read_dtype, None)})
        for name in ("less", "less_equal", "equal", "not_equal")
    },
    **_binary("and", "or", "xor", infer=rules.pointwise_bool),
    **_binary("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", infer=rules.pointwise_integer),
    "where": GraphOperator(3, 3, rules.where, {"dtype": _a(read_dtype, None)}),
    **{
        name: GraphOperator(1, 1, rules.reduction, _AXES)
        for name in ("sum", "mean", "max", "min", "prod", "any", "all")
    },
    **{
        name: GraphOperator(1, 1, rules.position_of_largest, {**_AXIS, **_KEEP})
        for name in ("argmax", "argmin")
    },
    **{
        name: GraphOperator(1, 1, rules.along_axis, _AXIS)
        for name in ("log_softmax", "cumsum", "cumprod", "cummax", "cummin")
    },
    "softmax": GraphOperator(
        1, 1, rules.along_axis, {**_AXIS, "masked_rows": _a(one_of("nan", "zero"), "nan")}
    ),
    "layernorm": GraphOperator(1, 3, rules.norm, {**_EPS, "num_axes": _a(read_integer, 1)}),
    "rmsnorm": GraphOperator(1, 2, rules.norm, {**_EPS, "num_axes": _a(read_integer, 1)}),
    "matmul": GraphOperator(2, 2, rules.matmul),
    "linear": GraphOperator(2, 3, rules.linear),
    "attention": GraphOperator(
        3,
        4,
        rules.attention,
        {
            "scale": _a(read_number),
            "causal": _a(one_of("none", "first", "last"), "none"),
            "masked_rows": _a(one_of("zero", "nan"), "zero"),
        },
    ),
    "conv": GraphOperator(2, 3, rules.convolution, {**_WINDOWS, "groups": _a(read_integer, 1)}),
    "max_pool": GraphOperator(
        1, 1, rules.pooling, {**_WINDOWS, "window": _a(read_integers), "ceil": _a(read_flag, False)}
    ),
    "avg_pool": GraphOperator(
        *(1, 1, rules.pooling),
        {
            **_WINDOWS,
            "window": _a(read_integers),
            "ceil": _a(read_flag, False),
            "count_pads": _a(read_flag, True),
        },
    ),
    "recurrent": GraphOperator(
        *(4, 7, rules.recurrent),
        {"cell": _a(one_of(*rules.NUM_GATES)), "reverse": _a(read_flag, False)},
    ),
    "recurrence": GraphOperator(
        *(3, 5, rules.recurrence),
        {"cell": _a(one_of(*rules.NUM_GATES)), "reverse": _a(read_flag, False)},
    ),
    "reshape": GraphOperator(1, 1, rules.reshape, {"shape": _a(read_shape)}),
    "transpose": GraphOperator(1, 1, rules.transpose, {"axes": _a(read_integers)}),
    "expand": GraphOperator(1, 1, rules.expand, {"shape": _a(read_shape)}),
    "slice": GraphOperator(
        *(1, 1, rules.slice_),
        {**_AXIS, "start": _a(read_extent), "stop": _a(read_extent), "step": _a(read_integer, 1)},
    ),
    "concat": GraphOperator(1, MANY, rules.concat, _AXIS),
    "pad": GraphOperator(1, 1, rules.pad, {"pads": _a(read_pads), "value": _a(read_number, 0)}),
    "rotate": GraphOperator(
        *(1, 1, rules.rotation), {"by": _a(read_integer), "negate": _a(read_flag, False)}
    ),
    "flip": GraphOperator(1, 1, rules.flip, {"axes": _a(read_integers)}),
    "take": GraphOperator(2, 2, positions.take, {**_AXIS, **_WRAPS}),
    "take_along": GraphOperator(2, 2, positions.take_along, {**_AXIS, **_WRAPS}),
    "take_points": GraphOperator(2, MANY, positions.take_points, _WRAPS),
    "scatter_along": GraphOperator(3, 3, positions.scatter_along, {**_AXIS, **_BY, **_WRAPS}),
    "scatter_points": GraphOperator(3, MANY, positions.scatter_points, {**_BY, **_WRAPS}),
    "full": GraphOperator(
        0, 0, rules.full, {"shape": _a(read_shape), "value": _a(read_number), "dtype": _a(read_dtype)}
    ),
    "arange": GraphOperator(
        *(0, 0, rules.arange),
        {
            "start": _a(read_extent, _ZERO),
            "stop": _a(read_extent),
            "step": _a(read_integer, 1),
            "dtype": _a(read_dtype, "int64"),
        },
    ),
    "extent": GraphOperator(0, 0, rules.number_of, {"value": _a(read_extent)}),
    "triangle": GraphOperator(
        1, 1, rules.triangle, {"side": _a(one_of("lower", "upper")), "diagonal": _a(read_integer, 0)}
    ),
    "top": GraphOperator(
        *(1, 1, rules.top),
        {**_AXIS, "num": _a(read_extent, None), "largest": _a(read_flag, True)},
    ),
    "nonzero": GraphOperator(1, 1, rules.nonzero, _SIZE),
    "repeat_each": GraphOperator(1, 1, rules.repeat_each, _SIZE),
    "size": GraphOperator(1, 1, rules.size, _SIZE),
    "assert": GraphOperator(
        *(0, 1, rules.check),
        {
            "value": _a(read_extent, _ZERO),
            "least": _a(read_integer, None),
            "most": _a(read_integer, None),
            "text": _a(read_text),
        },
    ),
    "cond": GraphOperator(1, MANY_OF_GRAPHS, flow.branches, {"then": _GRAPH, "else": _GRAPH}),
    "while_loop": GraphOperator(
        *(1, MANY_OF_GRAPHS, flow.while_loop),
        {"condition": _GRAPH, "body": _GRAPH, "carried": _a(read_count)},
    ),
    "scan": GraphOperator(
        *(1, MANY_OF_GRAPHS, flow.scan),
        {"body": _GRAPH, "carried": _a(read_count), "each": _a(read_count)},
    ),
}
"""By name. What is said of each is in ``docs/models.md``."""
