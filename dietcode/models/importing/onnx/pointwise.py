"""Functions of elements, comparisons and casts of ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import FLOATS, INTEGERS, GraphError
from dietcode.models.importing.onnx.context import (
    OnnxImporter,
    OnnxNode,
    OnnxResult,
    dtype_of,
    onnx_rule,
)
from dietcode.models.importing.onnx.known import Known
from dietcode.models.importing.spelled_out import (
    clipped,
    elu,
    hard_sigmoid,
    hard_swish,
    is_nan,
    leaky_relu,
    mish,
    prelu,
    softplus,
    truncated_quotient,
)


def _unary(m: OnnxImporter, n: OnnxNode, name: str) -> OnnxResult:
    return m.add(name, n.tensor(0))


for _word in (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor"),
    *("Log", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"),
):
    onnx_rule(_word, name=_word.lower())(_unary)


@onnx_rule("HardSwish", function=hard_swish)
@onnx_rule("IsNaN", function=is_nan)
@onnx_rule("Mish", function=mish)
@onnx_rule("Softplus", function=softplus)
def _of_one(m: OnnxImporter, n: OnnxNode, *, function: Callable[[OnnxImporter, str], str]) -> OnnxResult:
    return function(m, n.tensor(0))


@onnx_rule("Identity", "Dropout")
def _same(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    if n.proto.op_type == "Identity":
        return n.value(0)
    n.ignore("seed", "ratio")
    if n.value(2) is not None and n.number(2):
        raise GraphError("dropout of a model in training mode; call model.eval() before the export")
    n.value(1)  # the ratio is of training
    mask = m.add("full", shape=m.shape(n.value(0)), value=True, dtype="bool") if n.is_read(1) else None
    return [n.value(0), mask]


@onnx_rule("Reciprocal")
def _reciprocal(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return m.add("div", 1.0, n.tensor(0))


@onnx_rule("Gelu")
def _gelu(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return m.add("gelu", n.tensor(0), form="tanh" if n.attribute("approximate", "none") == "tanh" else "erf")


@onnx_rule("Swish")
def _swish(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    alpha = n.attribute("alpha", 1.0)
    x = n.tensor(0)
    if alpha == 1:
        return m.add("silu", x)
    return m.add("mul", x, m.add("sigmoid", m.add("mul", x, alpha)))


@onnx_rule("HardSigmoid")
def _hard_sigmoid(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    alpha, beta = n.attribute("alpha", 0.2), n.attribute("beta", 0.5)
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return hard_sigmoid(m, n.tensor(0))
    line = m.add("add", m.add("mul", n.tensor(0), alpha), beta)
    return m.add("clip", line, low=0.0, high=1.0)


@onnx_rule("LeakyRelu")
def _leaky_relu(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return leaky_relu(m, n.tensor(0), n.attribute("alpha", 0.01))


@onnx_rule("ThresholdedRelu")
def _thresholded(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    above = m.add("less", n.attribute("alpha", 1.0), x)
    return m.add("where", above, x, 0.0, dtype=m.type(x).dtype)


@onnx_rule("Elu")
def _elu(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return elu(m, n.tensor(0), n.attribute("alpha", 1.0))


@onnx_rule("Selu")
def _selu(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    alpha, gamma = n.attribute("alpha", 1.6732632423543772), n.attribute("gamma", 1.0507009873554805)
    return elu(m, n.tensor(0), alpha, scale=gamma)


@onnx_rule("Celu")
def _celu(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    alpha = n.attribute("alpha", 1.0)
    return elu(m, n.tensor(0), alpha, input_scale=1 / alpha)


@onnx_rule("Softsign")
def _softsign(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    return m.add("div", x, m.add("add", m.add("abs", x), 1.0))


@onnx_rule("PRelu")
def _prelu(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return prelu(m, n.tensor(0), n.tensor(1))


def _arithmetic(m: OnnxImporter, n: OnnxNode, name: str) -> OnnxResult:
    return m.add(name, *m.operands(n.values))


for _name in ("Add", "Sub", "Mul"):
    onnx_rule(_name, name=_name.lower())(_arithmetic)


@onnx_rule("Div")
def _div(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    dtype = m.dtype(n.value(0))
    x, y = m.operands(n.values)
    return truncated_quotient(m, x, y, dtype) if dtype in INTEGERS else m.add("div", x, y)


@onnx_rule("Mod")
def _mod(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return m.add("fmod" if n.attribute("fmod", 0) else "remainder", *m.operands(n.values))


@onnx_rule("Pow")
def _pow(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    dtype = m.dtype(n.value(0))
    x, exponent = m.operands(n.values)
    if dtype in INTEGERS and m.dtype(n.value(1)) in FLOATS:
        power = m.add("pow", *(m.cast(one, "float64") for one in (x, exponent)))
        return str(m.cast(power, dtype))
    known = {2: "square", 0.5: "sqrt", 1: ""}
    if isinstance(x, str) and isinstance(exponent, int | float) and exponent in known:
        return m.add(known[exponent], x) if known[exponent] else x
    if isinstance(x, str) and exponent == 3:
        return m.add("mul", x, m.add("square", x))
    if dtype in INTEGERS:
        raise GraphError(f"powers of {dtype}; allowed: floating point, or one power, 1, 2 or 3")
    return m.add("pow", x, m.cast(exponent, dtype))


for _word in ("And", "Or", "Xor"):
    onnx_rule(f"Bitwise{_word}", name=f"bit_{_word.lower()}")(_arithmetic)


@onnx_rule("BitwiseNot")
def _bitwise_not(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return m.add("bit_xor", n.tensor(0), -1)


@onnx_rule("BitShift")
def _bit_shift(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return m.add(f"shift_{str(n.attribute('direction')).lower()}", *m.operands(n.values))


def _of_all(m: OnnxImporter, n: OnnxNode, name: str) -> OnnxResult:
    if len(n.values) == 1:
        return n.value(0)
    total: Value = reduce(lambda a, b: m.add(name, a, b), m.operands(n.values))
    assert isinstance(total, str)
    return m.add("div", total, float(len(n.values))) if n.proto.op_type == "Mean" else total


for _word, _name in {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}.items():
    onnx_rule(_word, name=_name)(_of_all)


@onnx_rule("Clip")
def _clip(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    bounds = [None if n.value(k) is None else m.operand(n.value(k), 0) for k in (1, 2)]
    return clipped(m, n.tensor(0), *bounds)


def _comparison(m: OnnxImporter, n: OnnxNode, name: str, swapped: bool) -> OnnxResult:
    pair = m.operands(n.values)
    return m.add(name, *(pair[::-1] if swapped else pair))


for _word, _name, _swapped in (
    ("Less", "less", False),
    ("Greater", "less", True),
    ("LessOrEqual", "less_equal", False),
    ("GreaterOrEqual", "less_equal", True),
    ("Equal", "equal", False),
):
    onnx_rule(_word, name=_name, swapped=_swapped)(_comparison)
for _name in ("And", "Or", "Xor", "Not"):
    onnx_rule(_name, name=_name.lower())(_arithmetic)


@onnx_rule("Where")
def _where(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    dtype = m.dtype(n.value(1))
    rank = max(len(m.shape(one)) for one in n.values if one is n.value(0) or isinstance(one, str))
    values = [m.operand(one, rank) for one in n.values[1:]]
    return m.add("where", n.tensor(0), *values, dtype=dtype)


@onnx_rule("IsInf")
def _isinf(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    signs = [(n.attribute("detect_negative", 1), -math.inf), (n.attribute("detect_positive", 1), math.inf)]
    found = [m.add("equal", n.tensor(0), value) for detected, value in signs if detected]
    if not found:
        return m.add("full", shape=m.type(n.tensor(0)).shape, value=False, dtype="bool")
    return reduce(lambda a, b: m.add("or", a, b), found)


def _cast_to(m: OnnxImporter, value: object, dtype: str) -> OnnxResult:
    if isinstance(value, Known) and value.is_constant and value.array.size == 1:
        return Known(value.array.astype(dtype), dtype)
    assert isinstance(value, str | Known)
    return str(m.cast(m.tensor(value), dtype))


@onnx_rule("Cast")
def _cast(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    n.ignore("saturate", "round_mode")  # of dtypes that models do not have
    return _cast_to(m, n.value(0), dtype_of(n.attribute("to")))


@onnx_rule("CastLike")
def _cast_like(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    n.ignore("saturate", "round_mode")
    return _cast_to(m, n.value(0), m.dtype(n.value(1)))


@onnx_rule("Shrink")
def _shrunk(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Bring elements nearer to 0 by a bias, and to 0 those whose distance is at most a limit."""
    x, limit, bias = n.tensor(0), n.attribute("lambd", 0.5), n.attribute("bias", 0.0)
    own = m.type(x).dtype
    dtype = own if own in FLOATS else "float64"  # a limit and a bias may be fractions
    x = str(m.cast(x, dtype))
    above = m.add("where", m.add("less", limit, x), m.add("sub", x, bias), 0.0, dtype=dtype)
    found = m.add("where", m.add("less", x, -limit), m.add("add", x, bias), above, dtype=dtype)
    return str(m.cast(found, own))
