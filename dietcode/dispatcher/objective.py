"""The trade-off between performance and the size of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Objective:
    """The objective that ``g`` of Equation 2 trades, ``G = g(Perf(k), BinarySize(k))``.

    Parameters
    ----------
    binary_size : float
        Mean performance that may be given up for a smaller library, a fraction in [0, 1).
    max_loss : float or None
        Worst loss of any instance of positive weight against its best micro-kernel, a fraction in [0, 1].
    max_kernels, max_bytes : int or None
        Hard caps on the number of micro-kernels and on the bytes of the whole library, at least 1.
    weight : None or 'flops'
        ``None``: the probability-weighted geometric mean of slowdowns. ``'flops'``: Equation 1's weights.

    Raises
    ------
    ValueError
        A field outside its range.
    """

    binary_size: float = 0.02
    max_loss: float | None = None
    max_kernels: int | None = None
    max_bytes: int | None = None
    weight: Literal["flops"] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.binary_size < 1:
            raise ValueError(f"binary_size is {self.binary_size}; allowed: 0 <= binary_size < 1")
        if self.max_loss is not None and not 0 <= self.max_loss <= 1:
            raise ValueError(f"max_loss is {self.max_loss}; allowed: 0 to 1, or None")
        for name in ("max_kernels", "max_bytes"):
            cap = getattr(self, name)
            if cap is not None and cap < 1:
                raise ValueError(f"{name} is {cap}; allowed: at least 1, or None")
        if self.weight not in (None, "flops"):
            raise ValueError(f"weight is {self.weight!r}; allowed: None or 'flops'")
