"""The operators that a block may consist of: the closed list, with what each takes. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dietcode.workload.text import clip

LARGEST_NUMBER = 1e30  # of an attribute, or in the place of an operand
MAX_SLIDE = 2**15  # of windows, strides, padding and rotations, in elements
MAX_GATES = 16  # positions along an index that slices take apart


def _number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) <= LARGEST_NUMBER:
        raise ValueError(f"given {clip(given)}; allowed: a finite number, at most 1e30")
    return float(given)


def _positive(given: object) -> float:
    number = _number(given)
    if not number > 0:
        raise ValueError(f"given {clip(given)}; allowed: a number above 0, at most 1e30")
    return number


def _indices(given: object) -> str:
    if not isinstance(given, str) or not given.isascii() or not given.isalpha():
        raise ValueError(f"given {clip(given)}; allowed: the letter of an index, or several")
    return given


def _index(given: object) -> str:
    indices = _indices(given)
    if len(indices) != 1:
        raise ValueError(f"given {clip(given)}; allowed: the letter of one index")
    return indices


def _position(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < MAX_GATES:
        raise ValueError(f"given {clip(given)}; allowed: a whole number from 0 to {MAX_GATES - 1}")
    return given


def _sizes(least: int) -> Callable[[object], tuple[int, ...]]:
    """Return what reads one integer or several, from `least` on."""

    def read(given: object) -> tuple[int, ...]:
        many: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
        if not 1 <= len(many) <= 4 or not all(type(n) is int and least <= n <= MAX_SLIDE for n in many):
            allowed = f"an integer from {least} to {MAX_SLIDE}, or one for each axis"
            raise ValueError(f"given {clip(given)}; allowed: {allowed}")
        return tuple(many)

    return read


def _shift(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_SLIDE:
        raise ValueError(f"given {clip(given)}; allowed: an integer from 1 to {MAX_SLIDE}, of positions")
    return given


def _within(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 2 <= given <= MAX_SLIDE:
        raise ValueError(f"given {clip(given)}; allowed: an integer from 2 to {MAX_SLIDE}, of columns")
    return given


def _flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"given {clip(given)}; allowed: true or false")
    return given


def _form_of_gelu(given: object) -> str:
    if given not in ("erf", "tanh"):
        raise ValueError(f"given {clip(given)}; allowed: erf or tanh")
    return str(given)


def _masked_rows(given: object) -> str:
    if given not in ("zero", "nan"):
        raise ValueError(f"given {clip(given)}; allowed: zero or nan")
    return str(given)


@dataclass(frozen=True)
class Attribute:
    """What an operator takes beside its operands.

    Attributes
    ----------
    read : callable
        Returns the checked value; raises ValueError with what is allowed.
    default : object
        Value where it is not given; `REQUIRED`, or None for nothing.
    """

    read: Callable[[object], Any]
    default: Any = None


REQUIRED = object()


@dataclass(frozen=True)
class BlockOperator:
    """One operator.

    Attributes
    ----------
    operands : tuple of str
        What each operand is, in words of the documentation.
    num_optional : int
        How many of the last ones may be left out.
    needs_attribute : bool
        Whether one of its attributes has to be given, though each has a default.
    reduces : bool
        Whether its result lacks the indices of its attribute `axis`.
    along_row : bool
        Whether an element of its result depends on others of its row.
    is_product : bool
        Whether it is a product, summed over the indices that its attribute `dims` leaves out.
    is_pointwise : bool
        Whether an element of its result depends on the same element of each operand alone.
    """

    operands: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    num_optional: int = 0
    needs_attribute: bool = False
    reduces: bool = False
    along_row: bool = False
    is_product: bool = False
    is_pointwise: bool = False

    def allowed_operands(self) -> str:
        """Return how many operands there may be, and what they are."""
        most = len(self.operands)
        least = most - self.num_optional
        return f"{most if least == most else f'{least} to {most}'}: {', '.join(self.operands)}"


_AXIS = {"axis": Attribute(_indices, REQUIRED)}
_ONE = BlockOperator(("x",), is_pointwise=True)
_TWO = BlockOperator(("a", "b"), is_pointwise=True)
_REDUCTION = BlockOperator(("x",), _AXIS, reduces=True, along_row=True)

_POOL = {
    "dims": Attribute(_indices, REQUIRED),
    "window": Attribute(_sizes(1), REQUIRED),
    "strides": Attribute(_sizes(1), (1,)),
    "padding": Attribute(_sizes(0), (0,)),
}

OPERATORS: dict[str, BlockOperator] = {
    "einsum": BlockOperator(("a", "b"), {"dims": Attribute(_indices, REQUIRED)}, is_product=True),
    "gather": BlockOperator(("table", "positions")),
    "relabel": BlockOperator(("tensor",), {"dims": Attribute(_indices, REQUIRED)}),
    "transpose": BlockOperator(("tensor",), {"dims": Attribute(_indices, REQUIRED)}),
    "slice": BlockOperator(
        ("x",), {"axis": Attribute(_index, REQUIRED), "at": Attribute(_position, REQUIRED)}
    ),
    "maxpool": BlockOperator(("tensor",), _POOL),
    "avgpool": BlockOperator(("tensor",), {**_POOL, "count_include_pad": Attribute(_flag, True)}),
    "rotate": BlockOperator(
        ("x",),
        {
            "axis": Attribute(_index, REQUIRED),
            "by": Attribute(_shift, REQUIRED),
            "negate": Attribute(_flag, False),
            "within": Attribute(_within),
        },
        along_row=True,
    ),
    "add": _TWO,
    "sub": _TWO,
    "mul": _TWO,
    "div": _TWO,
    "maximum": _TWO,
    "minimum": _TWO,
    "less": _TWO,
    "less_equal": _TWO,
    "where": BlockOperator(("condition", "a", "b"), is_pointwise=True),
    "clip": BlockOperator(
        ("x",),
        {"low": Attribute(_number), "high": Attribute(_number)},
        needs_attribute=True,
        is_pointwise=True,
    ),
    "neg": _ONE,
    "abs": _ONE,
    "square": _ONE,
    "sqrt": _ONE,
    "rsqrt": _ONE,
    "exp": _ONE,
    "log": _ONE,
    "sin": _ONE,
    "cos": _ONE,
    "floor": _ONE,
    "ceil": _ONE,
    "round": _ONE,
    "tanh": _ONE,
    "sigmoid": _ONE,
    "relu": _ONE,
    "silu": _ONE,
    "gelu": BlockOperator(("x",), {"form": Attribute(_form_of_gelu, "erf")}, is_pointwise=True),
    "sum": _REDUCTION,
    "mean": _REDUCTION,
    "max": _REDUCTION,
    "min": _REDUCTION,
    "hide": BlockOperator(("x", "lengths"), {"axis": Attribute(_index, REQUIRED)}, along_row=True),
    "softmax": BlockOperator(
        ("x", "mask"),
        {
            **_AXIS,
            "scale": Attribute(_number, 1.0),
            "causal": Attribute(_index),
            "masked_rows": Attribute(_masked_rows),
        },
        num_optional=1,
        along_row=True,
    ),
    "layernorm": BlockOperator(
        ("x", "gamma", "beta"), {**_AXIS, "eps": Attribute(_positive, 1e-5)}, num_optional=2, along_row=True
    ),
    "rmsnorm": BlockOperator(
        ("x", "gamma"), {**_AXIS, "eps": Attribute(_positive, 1e-6)}, num_optional=1, along_row=True
    ),
}
"""By the word of a spec. What is said of each is in ``docs/blocks.md``."""

CPU_ALONE = frozenset({"hide", "transpose"})
"""Operators that GPUs have no code for."""

INTEGERS = {"gather": "positions in a table", "hide": "lengths"}
"""Operators whose second operand is an int32 tensor, and what it holds."""
