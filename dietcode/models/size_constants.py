"""Numbers that follow from sizes, where PyTorch's export would make a constant of one without a word."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dietcode.errors import ModelError
from dietcode.models.own_thread import here
from dietcode.models.sources import at, source_in


@contextmanager
def no_constants_of_sizes() -> Iterator[None]:
    """Refuse such numbers, and let attention have one as its scale, for as long as this lasts.

    Raises
    ------
    ModelError
        A number of a size became a constant: it would be wrong for all other sizes.
    """
    from torch.fx.experimental.sym_node import SymNode
    from torch.nn import functional

    guard, attention = SymNode.guard_float, functional.scaled_dot_product_attention
    SymNode.guard_float = here(_refusing(guard), guard)
    functional.scaled_dot_product_attention = here(_scaled(attention), attention)
    try:
        yield
    finally:
        SymNode.guard_float = guard
        functional.scaled_dot_product_attention = attention


def _refusing(guard: Callable[..., float]) -> Callable[..., float]:
    """Return what makes a constant of a number, except of one that follows from sizes."""

    def guard_float(self: Any, file: str, line: int) -> float:
        if self.expr.is_number:
            return guard(self, file, line)
        where = at(source_in("".join(traceback.format_stack())))
        raise ModelError(
            f"torch.export: a number that is computed of sizes becomes a constant{where}; allowed: +, -, *, "
            "/ and ** of sizes, as x.shape[1] ** -0.5, and operators that take such numbers"
        )

    return guard_float


def _scaled(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Return attention whose scale may follow from sizes: queries are multiplied by it then."""
    import torch

    def scaled_dot_product_attention(query: Any, *args: Any, scale: Any = None, **kwargs: Any) -> Any:
        if isinstance(scale, torch.SymFloat | torch.SymInt):
            query, scale = query * scale, 1.0
        return attention(query, *args, scale=scale, **kwargs)

    return scaled_dot_product_attention
