"""Functions of elements, comparisons and casts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.graph.graph import Value
from dietcode.graph.operators import LIBRARY_FUNCTIONS
from dietcode.graph.tensor_type import INTEGERS, GraphError
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule
from dietcode.models.importing.spelled_out import (
    clipped,
    elu,
    leaky_relu,
    prelu,
    softplus,
    truncated_quotient,
)

_SOFTPLUS_IS_X = 15.0  # from here on log(1 + exp(x)) is x in float32


@rule("aten.special_erf.default", name="erf")
@rule("aten.special_erfc.default", name="erfc")
@rule("aten.fix.default", name="trunc")
def _unary(m: Importer, a: Mapping[str, Any], fake: Any, name: str) -> Imported:
    x, dtype = m.tensor(next(iter(a.values()))), dtype_name(fake.dtype)
    if name in ("floor", "ceil", "round", "trunc") and dtype in INTEGERS:
        return x
    return m.add(name, m.cast(x, dtype))


for _name in (
    *("relu", "silu", "tanh", "sigmoid", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "sin", "cos"),
    *("erf", "floor", "ceil", "round", "square", *LIBRARY_FUNCTIONS),
):
    rule(f"aten.{_name}.default", name=_name)(_unary)


@rule("aten.sgn.default", "aten.sign.default")
def _sign(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return -1, 0 or 1, and 0 for NaN, as PyTorch does."""
    x, dtype = m.tensor(a["self"]), dtype_name(fake.dtype)
    if dtype in INTEGERS:
        return m.add("sign", x)
    return m.add("sub", m.add("less", 0.0, x, dtype=dtype), m.add("less", x, 0.0, dtype=dtype))


@rule("aten.round.decimals")
def _round_to(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Round to a number of digits after the point, or before it where the number is negative."""
    x, digits = m.tensor(a["self"]), int(a["decimals"])
    if not digits or not m.type(x).dtype.startswith("float"):
        return m.add("round", x)
    to, back = ("mul", "div") if digits > 0 else ("div", "mul")
    scale = 10.0 ** abs(digits)
    return m.add(back, m.add("round", m.add(to, x, scale)), scale)


@rule("aten.gelu.default")
def _gelu(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("gelu", m.tensor(a["self"]), form="tanh" if a["approximate"] == "tanh" else "erf")


@rule("aten.reciprocal.default")
def _reciprocal(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("div", 1.0, m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)))


@rule("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", low="min", high="max")
@rule("aten.clamp_min.default", low="min", high=None)
@rule("aten.clamp_max.default", low=None, high="max")
@rule("aten.hardtanh.default", low="min_val", high="max_val")
def _clamp(m: Importer, a: Mapping[str, Any], fake: Any, *, low: str | None, high: str | None) -> Imported:
    dtype = dtype_name(fake.dtype)  # of a size, which is a bound, too
    bounds = (None if name is None else m.cast(m.value(a[name]), dtype) for name in (low, high))
    return clipped(m, str(m.cast(m.tensor(a["self"]), dtype)), *bounds)


@rule("aten.relu6.default")
def _relu6(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return clipped(m, m.tensor(a["self"]), 0.0, 6.0)


@rule("aten.leaky_relu.default")
def _leaky_relu(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return leaky_relu(m, m.tensor(a["self"]), a["negative_slope"])


@rule("aten.softshrink.default")
def _softshrink(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, distance = m.tensor(a["self"]), float(a["lambd"])
    above = m.add("clip", m.add("sub", x, distance), low=0.0)
    return m.add("add", above, m.add("clip", m.add("add", x, distance), high=0.0))


@rule("aten.rrelu_with_noise_functional.default")
def _random_leaky_relu(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    if a["training"]:
        raise GraphError("a random slope; call model.eval() before the export")
    return leaky_relu(m, m.tensor(a["self"]), (a["lower"] + a["upper"]) / 2), None


@rule("aten.elu.default")
def _elu(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return elu(m, m.tensor(a["self"]), a["alpha"], a["scale"], a["input_scale"])


@rule("aten.softplus.default")
def _softplus(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return x itself above the threshold; from `_SOFTPLUS_IS_X` on both are the same in float32."""
    x, beta, threshold = m.tensor(a["self"]), float(a["beta"]), float(a["threshold"])
    steeper = x if beta == 1 else m.add("mul", x, beta)
    found = softplus(m, steeper)
    if beta != 1:
        found = m.add("div", found, beta)
    if threshold >= _SOFTPLUS_IS_X:
        return found
    return m.add("where", m.add("less", threshold, steeper), x, found, dtype=dtype_name(fake.dtype))


@rule("aten.prelu.default", "aten._prelu_kernel.default")
def _prelu(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, weight = m.tensor(a["self"]), m.tensor(a["weight"])
    if m.rank(weight) == 1 and m.rank(x) > 2:
        weight = m.reshape(weight, (*m.type(weight).shape, *[1] * (m.rank(x) - 2)))
    return prelu(m, x, weight)


def _product(m: Importer, first: Value, second: Value) -> Value:
    """Return the product of tensors and numbers, a number where both are."""
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first * second
    return m.add("mul", first, second)


@rule("aten.rsub.Scalar", "aten.rsub.Tensor", name="sub", swapped=True)
@rule("aten.floor_divide.default", "aten.floor_divide.Scalar", name="floor_divide")
@rule("aten.remainder.Tensor", "aten.remainder.Scalar", name="remainder")
@rule("aten.fmod.Tensor", "aten.fmod.Scalar", name="fmod")
@rule("aten.atan2.default", name="atan2")
@rule("aten.copysign.Tensor", "aten.copysign.Scalar", name="copysign")
@rule("aten.hypot.default", name="hypot")
def _arithmetic(m: Importer, a: Mapping[str, Any], fake: Any, name: str, swapped: bool = False) -> Imported:
    first, second = (m.value(one) for one in list(a.values())[:2])
    dtype = dtype_name(fake.dtype)
    first, second = m.cast(first, dtype), m.cast(second, dtype)
    alpha = m.cast(m.value(a.get("alpha", 1)), dtype)
    if alpha != 1 and swapped:
        first = m.add("mul", first, alpha)
    elif alpha != 1:
        second = _product(m, second, alpha)
    own = f"bit_{name}" if name in ("and", "or", "xor") and dtype != "bool" else name
    return m.add(own, *((second, first) if swapped else (first, second)))


for _name in ("add", "sub", "mul", "maximum", "minimum"):
    rule(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", f"aten.{_name}.default", name=_name)(_arithmetic)
for _name in ("and", "or", "xor"):
    rule(f"aten.bitwise_{_name}.Tensor", f"aten.bitwise_{_name}.Scalar", name=_name)(_arithmetic)
    rule(f"aten.__{_name}__.Tensor", f"aten.__{_name}__.Scalar", name=_name)(_arithmetic)
for _name, _short in {"left": "lshift", "right": "rshift"}.items():
    rule(
        *(f"aten.bitwise_{_name}_shift.{kind}" for kind in ("Tensor", "Tensor_Scalar")),
        *(f"aten.__{_short}__.{kind}" for kind in ("Tensor", "Scalar")),
        name=f"shift_{_name}",
    )(_arithmetic)


def _logical(m: Importer, a: Mapping[str, Any], fake: Any, name: str) -> Imported:
    return m.add(name, *(m.cast(m.tensor(a[key]), "bool") for key in ("self", "other")))


for _name in ("and", "or", "xor"):
    rule(f"aten.logical_{_name}.default", name=_name)(_logical)


@rule("aten.logical_not.default", "aten.bitwise_not.default")
def _not(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    if dtype_name(fake.dtype) != "bool":
        return m.add("bit_xor", m.tensor(a["self"]), -1)
    return m.add("not", m.cast(m.tensor(a["self"]), "bool"))


@rule("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def _div(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return _arithmetic(m, {"self": a["self"], "other": a["other"]}, fake, "div")


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    pair = {"self": a["self"], "other": a["other"]}
    if a["rounding_mode"] != "trunc":
        return _arithmetic(m, pair, fake, "floor_divide" if a["rounding_mode"] else "div")
    dtype = dtype_name(fake.dtype)
    x, y = (m.cast(m.value(one), dtype) for one in pair.values())
    return truncated_quotient(m, x, y, dtype)


@rule("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor")
def _pow(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    dtype = dtype_name(fake.dtype)
    x, exponent = m.cast(m.tensor(a["self"]), dtype), m.cast(m.value(a["exponent"]), dtype)
    known = {2: "square", 0.5: "sqrt", -0.5: "rsqrt"}
    if isinstance(exponent, int | float) and exponent in known:
        return m.add(known[exponent], x)
    if exponent == 3:
        return m.add("mul", x, m.add("square", x))
    if exponent == -1:
        return m.add("div", 1.0, x)
    return x if exponent == 1 else m.add("pow", x, exponent)


@rule("aten.pow.Scalar")
def _power_of_number(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    dtype = dtype_name(fake.dtype)
    return m.add("pow", m.cast(m.value(a["self"]), dtype), m.cast(m.tensor(a["exponent"]), dtype))


def _comparison(m: Importer, a: Mapping[str, Any], fake: Any, name: str, swapped: bool) -> Imported:
    import torch

    fakes = [one.meta["val"] if hasattr(one, "meta") else one for one in (a["self"], a["other"])]
    dtype = dtype_name(torch.result_type(*fakes))
    pair = [m.cast(m.value(a[key]), dtype) for key in ("self", "other")]
    return m.add(name, *(pair[::-1] if swapped else pair))


for _word, _name, _swapped in (
    ("lt", "less", False),
    ("gt", "less", True),
    ("le", "less_equal", False),
    ("ge", "less_equal", True),
    ("eq", "equal", False),
    ("ne", "not_equal", False),
):
    rule(f"aten.{_word}.Tensor", f"aten.{_word}.Scalar", name=_name, swapped=_swapped)(_comparison)


def _chosen(m: Importer, condition: str, first: Value, second: Value, dtype: str) -> str:
    values = [m.cast(one, dtype) for one in (first, second)]
    return m.add("where", condition, *values, dtype=dtype)


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def _where(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    condition = str(m.cast(m.tensor(a["condition"]), "bool"))
    return _chosen(m, condition, m.value(a["self"]), m.value(a["other"]), dtype_name(fake.dtype))


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    condition = str(m.cast(m.tensor(a["mask"]), "bool"))
    return _chosen(m, condition, m.value(a["value"]), m.tensor(a["self"]), dtype_name(fake.dtype))


@rule(
    *("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other"),
    *("aten.type_as.default", "prims.convert_element_type.default"),
)
def _to(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.cast(m.tensor(next(iter(a.values()))), dtype_name(fake.dtype))


@rule(
    *("aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default"),
    *("aten.detach_.default", "aten.lift_fresh_copy.default", "aten.lift_fresh.default"),
    "prims.copy_strided.default",  # of PyTorch's decompositions
)
def _same(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.tensor(next(iter(a.values())))


@rule(
    *("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"),
    "aten.native_dropout.default",
)
def _dropout(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    if a["train"] and a["p"] > 0:
        raise GraphError("dropout of a model in training mode; call model.eval() before the export")
    x = m.tensor(a["input"])
    return (x, None) if isinstance(fake, tuple | list) else x
