"""Complex numbers of PyTorch's as pairs of real tensors: graphs have no dtype for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import GraphError, TensorType
from dietcode.models.importing.builder import F, registered
from dietcode.models.importing.context import RULES, Importer

REAL_OF = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class ComplexPair:
    """A complex tensor.

    Parameters
    ----------
    real, imaginary : str or number
        Names of tensors; a number in place of one that is everywhere the same.
    """

    real: Value
    imaginary: Value


ComplexRule: TypeAlias = Callable[[Importer, Mapping[str, Any], Any], Any]
_RULES: dict[str, ComplexRule] = {}

# Both parts by themselves, by the rule for real tensors.
_EACH = {
    *("view.default", "reshape.default", "_unsafe_view.default", "view_copy.default", "flatten.using_ints"),
    *("unflatten.int", "unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default"),
    *("permute.default", "transpose.int", "t.default", "mT.default", "expand.default", "repeat.default"),
    *("tile.default", "slice.Tensor", "narrow.default", "select.int", "unbind.int", "split.Tensor"),
    *("split_with_sizes.default", "split.sizes", "chunk.default", "cat.default", "concat.default"),
    *("stack.default", "flip.default", "roll.default", "index_select.default", "index.Tensor"),
    *("clone.default", "contiguous.default", "alias.default", "detach.default", "_to_copy.default"),
    *("neg.default", "sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "cumsum.default"),
    *("where.self", "constant_pad_nd.default", "lift_fresh_copy.default", "unfold.default"),
    *("copy.default", "slice_scatter.default", "select_scatter.default", "index_put.default"),
}
# Products: the sum of those of the parts, by the rule for real tensors.
_PRODUCTS = {"mul.Tensor", "mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default"}


def is_complex(m: Importer, node: Any, fake: Any) -> bool:
    """Whether a node reads or gives complex numbers."""
    import torch

    read = torch.utils._pytree.tree_leaves((list(node.args), dict(node.kwargs)))
    given = fake if isinstance(fake, list | tuple) else [fake]
    return any(_is_pair(m, one) for one in read) or any(
        str(getattr(one, "dtype", "")).removeprefix("torch.") in REAL_OF for one in given
    )


def _is_pair(m: Importer, argument: Any) -> bool:
    if isinstance(argument, complex):
        return True
    return hasattr(argument, "op") and isinstance(m.values.get(argument.name), ComplexPair)


def translated_complex(m: Importer, word: str, arguments: Mapping[str, Any], fake: Any) -> Any:
    """Return the result of an operator on complex numbers: pairs, or real tensors.

    Parameters
    ----------
    m : Importer
    word : str
        As ``aten.mul.Tensor``.
    arguments : mapping
        By name, with defaults.
    fake : object
        What PyTorch has.

    Raises
    ------
    GraphError
        There is no rule for it.
    """
    plain = word.removeprefix("aten.")
    if word in _RULES:
        return _RULES[word](m, arguments, fake)
    if plain in _EACH and word in RULES:
        return _each(m, word, arguments, fake)
    if plain in _PRODUCTS:
        first, second = _operands(arguments)
        return _product(m, _by_rule(m, word, arguments, fake, first, second), first, second, fake)
    raise GraphError(
        "complex numbers; allowed: FFTs, sums, products and views of them (real arithmetic, by view_as_real)"
    )


def complex_rule(*names: str, **bound: Any) -> Callable[[F], F]:
    """Register a rule for operators that read or give complex numbers; as `rule`."""
    return registered(_RULES, [f"aten.{name}" for name in names], bound)


def pair_of(m: Importer, argument: Any) -> ComplexPair:
    """Return an argument, a tensor or a number, as a pair."""
    if isinstance(argument, complex):
        return ComplexPair(argument.real, argument.imag)
    value = m.values[argument.name] if hasattr(argument, "op") else argument
    return value if isinstance(value, ComplexPair) else ComplexPair(m.value(argument), 0.0)


def tensor_of(m: Importer, part: Value, fake: Any) -> str:
    """Return a part as a tensor in the shape of a result."""
    dtype = str(fake.dtype).removeprefix("torch.")
    dtype, shape = REAL_OF.get(dtype, dtype), m.symbols_shape(fake.shape)
    if not isinstance(part, str):
        return m.add("full", shape=shape, value=float(part or 0), dtype=dtype)
    part = str(m.cast(part, dtype))
    return part if m.type(part).shape == shape else m.add("expand", part, shape=shape)


def paired(m: Importer, real: Value, imaginary: Value, fake: Any) -> ComplexPair:
    """Return a pair of tensors in the shape of a result."""
    return ComplexPair(tensor_of(m, real, fake), tensor_of(m, imaginary, fake))


def _component(fake: Any) -> Any:
    """Return what a rule reads of PyTorch's result, as if it were one part."""
    if isinstance(fake, list | tuple):
        return [_component(one) for one in fake]
    import torch

    real = {torch.complex64: torch.float32, torch.complex128: torch.float64}
    return SimpleNamespace(shape=fake.shape, dtype=real.get(fake.dtype, fake.dtype))


def _each(m: Importer, word: str, arguments: Mapping[str, Any], fake: Any) -> Any:
    """Return the results of a rule for the real parts beside those for the imaginary ones."""
    found: list[Any] = []
    for part in ("real", "imaginary"):
        given = {key: _with_part(m, one, part) for key, one in arguments.items()}
        if part == "imaginary" and isinstance(given.get("value"), int | float):
            given["value"] = 0  # a pad
        if given.get("dtype") is not None:
            given["dtype"] = _component(fake).dtype
        found.append(RULES[word](m, given, _component(fake)))
    if isinstance(found[0], str):
        return ComplexPair(found[0], found[1])
    return tuple(ComplexPair(*one) for one in zip(*found, strict=True))


def _with_part(m: Importer, argument: Any, part: str) -> Any:
    """Return an argument with one part in place of a pair."""
    if isinstance(argument, list | tuple):
        return [_with_part(m, one, part) for one in argument]
    if not _is_pair(m, argument):
        real = hasattr(argument, "op") and hasattr(argument.meta.get("val"), "is_floating_point")
        if part == "imaginary" and real and argument.meta["val"].is_floating_point():
            return _Given(m, m.add("mul", m.tensor(argument), 0.0))
        return argument
    return _Given(m, getattr(pair_of(m, argument), part))


class _Given:
    """An argument that a rule reads as a node: one part of a pair."""

    op, meta = "call_function", {}  # type: tuple[str, dict[str, Any]]

    def __init__(self, m: Importer, value: Value) -> None:
        self.name = f"({value})"  # no name of a node
        m.values[self.name] = value


def _operands(arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    first, second = list(arguments.values())[:2]
    return first, second


_Multiply: TypeAlias = Callable[[Value, Value], Value]


def _by_rule(
    m: Importer, word: str, arguments: Mapping[str, Any], fake: Any, first: Any, second: Any
) -> _Multiply:
    """Return a product of two parts by the rule for real tensors.

    Parameters
    ----------
    m : Importer
    word : str
    arguments : mapping
    fake : object
    first, second : object
        The arguments that are multiplied.
    """
    names = list(arguments)

    def multiply(x: Value, y: Value) -> Value:
        if not isinstance(x, str) and not isinstance(y, str):
            return float(x or 0) * float(y or 0)
        if (not isinstance(x, str) and not x) or (not isinstance(y, str) and not y):
            return 0.0
        given = {**arguments, names[0]: _Given(m, x), names[1]: _Given(m, y)}
        result: Value = RULES[word](m, given, _component(fake))  # type: ignore[assignment]
        return result

    return multiply


def _plus(m: Importer, x: Value, y: Value, operator: str = "add") -> Value:
    """Return a sum, or a difference; nothing is added where a part is 0."""
    if not isinstance(x, str) and not isinstance(y, str):
        return float(x or 0) + (float(y or 0) if operator == "add" else -float(y or 0))
    if not isinstance(y, str) and not y:
        return x
    if not isinstance(x, str) and not x and operator == "add":
        return y
    return m.add(operator, x, y)


def _product(m: Importer, multiply: _Multiply, first: Any, second: Any, fake: Any) -> ComplexPair:
    x, y = pair_of(m, first), pair_of(m, second)
    real = _plus(m, multiply(x.real, y.real), multiply(x.imaginary, y.imaginary), "sub")
    imaginary = _plus(m, multiply(x.real, y.imaginary), multiply(x.imaginary, y.real))
    return paired(m, real, imaginary, fake)


@complex_rule(
    *("zeros.default", "new_zeros.default", "zeros_like.default"),
    *("empty.memory_format", "new_empty.default", "empty_like.default"),
    number=0.0,
)
@complex_rule("ones.default", "new_ones.default", "ones_like.default", number=1.0)
def _filled(m: Importer, a: Mapping[str, Any], fake: Any, *, number: float) -> Any:
    return paired(m, number, 0.0, fake)


@complex_rule("full.default", "new_full.default", "full_like.default")
def _full(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    value = pair_of(m, a["fill_value"])
    return paired(m, value.real, value.imaginary, fake)


@complex_rule("add.Tensor", operator="add")
@complex_rule("sub.Tensor", operator="sub")
def _added(m: Importer, a: Mapping[str, Any], fake: Any, *, operator: str) -> ComplexPair:
    if a["alpha"] != 1:
        raise GraphError(f"complex numbers with alpha {a['alpha']}; allowed: 1")
    x, y = pair_of(m, a["self"]), pair_of(m, a["other"])
    real, imaginary = (_plus(m, u, v, operator) for u, v in ((x.real, y.real), (x.imaginary, y.imaginary)))
    return paired(m, real, imaginary, fake)


@complex_rule("div.Tensor")
def _quotient(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    """Return ``x · conj(y) / |y|²``."""
    x, y = pair_of(m, a["self"]), pair_of(m, a["other"])
    if not isinstance(y.imaginary, str) and not y.imaginary:
        return paired(m, m.add("div", x.real, y.real), m.add("div", x.imaginary, y.real), fake)
    real, imaginary = tensor_of(m, y.real, fake), tensor_of(m, y.imaginary, fake)
    size = m.add("add", m.add("square", real), m.add("square", imaginary))
    back = ComplexPair(m.add("div", real, size), m.add("neg", m.add("div", imaginary, size)))
    x_real, x_imaginary = tensor_of(m, x.real, fake), tensor_of(m, x.imaginary, fake)
    products = [m.add("mul", u, v) for u in (x_real, x_imaginary) for v in (back.real, back.imaginary)]
    return ComplexPair(m.add("sub", products[0], products[3]), m.add("add", products[1], products[2]))


@complex_rule("abs.default")
def _abs(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    x = pair_of(m, a["self"])
    return m.add("sqrt", m.add("add", m.add("square", x.real), m.add("square", x.imaginary)))


@complex_rule("angle.default")
def _angle(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    x = pair_of(m, a["self"])
    return m.add("atan2", tensor_of(m, x.imaginary, fake), tensor_of(m, x.real, fake))


@complex_rule("real.default")
def _real(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    return pair_of(m, a["self"]).real


@complex_rule("imag.default")
def _imaginary(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    return pair_of(m, a["self"]).imaginary


@complex_rule("conj.default", "_conj.default", "_conj_physical.default", "conj_physical.default")
def _conjugate(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    x = pair_of(m, a["self"])
    return ComplexPair(x.real, m.add("neg", x.imaginary))


@complex_rule("resolve_conj.default", "resolve_neg.default")
def _same(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    return pair_of(m, a["self"])


@complex_rule("exp.default")
def _exp(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    x = pair_of(m, a["self"])
    return _polar(m, m.add("exp", x.real), x.imaginary)


def _polar(m: Importer, size: Value, angle: Value) -> ComplexPair:
    return ComplexPair(*(m.add("mul", size, m.add(one, angle)) for one in ("cos", "sin")))


@complex_rule("polar.default")
def _from_angle(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    return _polar(m, m.tensor(a["abs"]), m.tensor(a["angle"]))


@complex_rule("complex.default")
def _from_parts(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    return paired(m, m.tensor(a["real"]), m.tensor(a["imag"]), fake)


@complex_rule("view_as_real.default", "view_as_real_copy.default")
def _as_real(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    x = pair_of(m, a["self"])
    wide = [m.reshape(one, (*m.type(one).shape, ONE)) for one in (x.real, x.imaginary)]
    return m.add("concat", *wide, axis=m.rank(wide[0]) - 1)


@complex_rule("view_as_complex.default", "view_as_complex_copy.default")
def _as_complex(m: Importer, a: Mapping[str, Any], fake: Any) -> Any:
    x = m.tensor(a["self"])
    return ComplexPair(*(m.select(x, m.rank(x) - 1, k) for k in (0, 1)))


def complex_weight(m: Importer, key: str, array: np.ndarray[Any, Any]) -> ComplexPair:
    """Add the parts of a complex weight as two real ones, ``key.real`` and ``key.imag``."""
    parts = {f"{key}.real": array.real, f"{key}.imag": array.imag}
    for name, part in parts.items():
        if name not in m.constants:
            shape = tuple(map(Extent.of, part.shape))
            m.graph.add_weight(name, TensorType(str(part.dtype), shape))
            m.constants[name] = np.asarray(part, order="C")
    return ComplexPair(*parts)
