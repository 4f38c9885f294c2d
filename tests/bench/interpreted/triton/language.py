"""``triton.language`` as far as the GPU benchmark uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

float32, int64, constexpr = np.float32, np.int64, int
program: tuple[int, ...] = (0, 0)  # that runs


@dataclass
class _Dtype:
    element_ty: Any


@dataclass
class Pointer:
    """Addresses in a tensor's memory, in elements."""

    memory: Any
    at: Any

    @classmethod
    def of(cls, tensor: Any) -> Pointer:
        """The first element of a tensor; only memory that it spans may be touched."""
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        flat = tensor.as_strided((span,), (1,))
        return cls(flat, 0)

    @property
    def dtype(self) -> _Dtype:
        return _Dtype(self.memory.dtype)

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.memory, self.at + offset)

    def places(self, mask: Any) -> tuple[Any, Any]:
        """The addresses that exist, and which of all they are."""
        at, mask = np.broadcast_arrays(np.asarray(self.at), mask)
        assert ((at[mask] >= 0) & (at[mask] < len(self.memory))).all(), "outside of the tensor"
        return at[mask], mask


class Block(np.ndarray):  # type: ignore[type-arg]
    """Values of a program."""

    def to(self, dtype: Any) -> Any:
        import torch

        if isinstance(dtype, torch.dtype):
            return torch.from_numpy(np.asarray(self)).to(dtype)
        return self.astype(dtype).view(Block)


class Number(int):
    """A scalar of a program."""

    def to(self, dtype: Any) -> int:
        return int(dtype(self))


def program_id(axis: int) -> Number:
    return Number(program[axis])


def arange(first: int, end: int) -> Any:
    assert (end - first) & (end - first - 1) == 0, "a power of two"
    return np.arange(first, end)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def minimum(a: Any, b: Any) -> Any:
    return np.minimum(a, b)


def zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.zeros(shape, dtype).view(Block)


def load(pointer: Pointer, mask: Any, other: float) -> Any:
    places, mask = pointer.places(mask)
    values = np.full(mask.shape, other, np.float32)
    values[mask] = pointer.memory[places].float().numpy()
    return values


def dot(left: Any, right: Any, total: Any, input_precision: str) -> Any:
    assert input_precision == "ieee" and min(*left.shape, right.shape[1]) >= 16
    return (np.asarray(total) + left @ right).view(Block)


def store(pointer: Pointer, value: Any, mask: Any) -> None:
    places, mask = pointer.places(mask)
    pointer.memory[places] = value[mask]
