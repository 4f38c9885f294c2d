"""Kinds of a graph's operators, by how they treat axes."""

from __future__ import annotations

from dietcode.graph.operators import LIBRARY_FUNCTIONS
from dietcode.models.block_builder import POINTWISE

ELEMENTWISE = frozenset(
    {
        *("neg", "abs", "sign", "square", "relu", "sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "silu"),
        *("erf", "sin", "cos", "floor", "ceil", "round", "gelu", "clip", "not", "cast"),
        *("add", "sub", "mul", "maximum", "minimum", "floor_divide", "remainder", "div", "pow"),
        *("less", "less_equal", "equal", "not_equal", "and", "or", "xor", "where"),
        *("fmod", "atan2", "copysign", "hypot", *LIBRARY_FUNCTIONS),
        *("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"),
    }
)
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod", "any", "all"})
COMPUTED = POINTWISE | {
    *("less", "less_equal", "where", "log", "sin", "cos", "floor", "ceil", "round")
}  # by a block, element by element
