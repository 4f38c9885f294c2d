"""``split``, ``chunk``, ``tensor_split`` and ``one_hot`` of dynamic sizes, which PyTorch makes constants of.

The number of parts is the example's: it has to be the same for all sizes of the ranges, as that of
``torch.cat([x, y], 1).split(x.shape[1], 1)`` is where x and y are alike; else the branch is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def split(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return what divides an axis into parts of a size, the last of which may be smaller."""

    def compute(x: Any, split_size: Any, dim: int = 0) -> Any:
        parts = _parts(x, split_size, dim) if _is_dynamic(x.shape[dim], split_size) else None
        return own(x, split_size, dim) if parts is None else parts

    return compute


def chunk(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return what divides an axis into a number of parts of one size, the last of which may be smaller."""

    def compute(input: Any, chunks: Any, dim: int = 0) -> Any:
        total, parts = input.shape[dim], None
        if _is_dynamic(total) and isinstance(chunks, int):
            parts = _parts(input, (total + chunks - 1) // chunks, dim)
        return own(input, chunks, dim) if parts is None else parts

    return compute


def tensor_split(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return what divides an axis into a number of parts, the first of which may be larger by one."""

    def compute(input: Any, *args: Any, **kwargs: Any) -> Any:
        sections, dim = _sections(*args, **kwargs)
        total = input.shape[dim]
        if type(sections) is not int or not _is_dynamic(total):
            return own(input, *args, **kwargs)
        sizes = [(total + sections - 1 - number) // sections for number in range(sections)]
        return input.split_with_sizes(sizes, dim)

    return compute


def _sections(
    indices_or_sections: Any = None, dim: int = 0, *, sections: Any = None, indices: Any = None
) -> tuple[Any, int]:
    return (indices_or_sections if sections is None else sections), dim


def one_hot(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return what gives vectors as long as a number of classes, which may be a size."""
    import torch

    def compute(tensor: Any, num_classes: Any = -1) -> Any:
        if not _is_dynamic(num_classes):
            return own(tensor, num_classes)
        none = torch.zeros(*tensor.shape, num_classes, dtype=torch.int64)
        return none.scatter(-1, tensor[..., None], 1)

    return compute


def _is_dynamic(*sizes: Any) -> bool:
    import torch

    return any(type(one) is torch.SymInt for one in sizes)


def _parts(x: Any, size: Any, dim: int) -> Any:
    """Return parts of a size; None where the sizes depend on values."""
    total = x.shape[dim]
    example, own = (one.node.hint if _is_dynamic(one) else one for one in (total, size))
    if not example or not own:
        return None
    num = -(-example // own)
    if not (num - 1) * size < total or not total <= num * size:  # what the export notes
        raise AssertionError(f"{num} parts of {size} of {total}")
    return x.split_with_sizes([*[size] * (num - 1), total - (num - 1) * size], dim)
