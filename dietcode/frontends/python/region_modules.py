"""Regions as modules of PyTorch, which are exported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dietcode.runtime.recorded.describing import DescribedArguments
from dietcode.runtime.recorded.variants import equal_value

FILE = Path(__file__).name
"""Where operators of a module come from that no line of the program computes."""


def module_of(
    function: Any,
    described: DescribedArguments,
    leaves: Sequence[Any],
    operands: Sequence[int],
    tensors: Sequence[tuple[int, str, Any]],
) -> Any:
    """Return a module whose ``forward`` takes the operands of a region and returns its results.

    Its parameters and buffers are those of the roots.

    Parameters
    ----------
    function : callable
        The region.
    described : DescribedArguments
        Its arguments.
    leaves : sequence of object
        Their values.
    operands : sequence of int
        Which of these the module takes.
    tensors : sequence of (int, str, torch.Tensor)
        Those of the roots.
    """
    import torch

    class RegionModule(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            kept: set[int] = set()
            for at, root in enumerate(described.roots):
                owner = getattr(root, "__self__", root)
                if isinstance(owner, torch.nn.Module) and id(owner) not in kept:
                    kept.add(id(owner))
                    self.add_module(f"part{at}", owner)
            known = {id(one) for one in (*self.parameters(), *self.buffers())}
            for at, (_, _, tensor) in enumerate(tensors):
                if id(tensor) in known:
                    continue
                known.add(id(tensor))
                if isinstance(tensor, torch.nn.Parameter):
                    self.register_parameter(f"own{at}", tensor)
                else:
                    self.register_buffer(f"own{at}", tensor)
            self.training = False

        def forward(self, *given: Any) -> Any:
            own = list(leaves)
            for k, value in zip(operands, given, strict=True):
                own[k] = _as_leaf(value, leaves[k])
            args = rebuilt(described.specs, iter(own), iter(described.roots))
            found = function(*args)
            passed = [one for one, leaf in zip(own, leaves, strict=True) if isinstance(leaf, torch.Tensor)]
            made = [one for one in _flat(found) if all(one is not leaf for leaf in passed)]
            return tuple(one if one.dtype == torch.float32 else one.float() for one in made)

    return RegionModule()


def rebuilt(specs: Sequence[Any], leaves: Iterator[Any], roots: Iterator[Any]) -> Iterator[Any]:
    """Yield arguments as specs say them, of their leaves and roots."""
    for word, *rest in specs:
        if word in ("tensor", "int", "float"):
            yield next(leaves)
        elif word in ("root", "dtype"):
            yield next(roots)
        elif word == "equal":
            yield equal_value(*rest)
        elif word == "own":
            return
        elif word == "record":
            cls = next(roots)
            yield cls(*rebuilt(rest[1], leaves, roots))
        else:
            inner = rebuilt(rest[0], leaves, roots)
            yield slice(*inner) if word == "slice" else tuple(inner) if word == "tuple" else list(inner)


def _flat(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _flat(one)


def _as_leaf(value: Any, leaf: Any) -> Any:
    import torch

    if isinstance(leaf, torch.Tensor):
        if leaf.dtype == torch.bool:
            return value != 0
        if leaf.dtype in (torch.int64, torch.int32):
            return value.to(leaf.dtype)
    return value


@contextmanager
def numbers_as_tensors() -> Iterator[None]:
    """Let ``torch.tensor`` of numbers that are operands be these."""
    import torch

    before = torch.tensor, torch.as_tensor

    def made(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
        if not any(True for _ in _flat(data)):
            return before[0](data, dtype=dtype)
        found = _stacked(data, before[0])
        return found if dtype is None else found.to(dtype)

    torch.tensor = torch.as_tensor = made
    try:
        yield
    finally:
        torch.tensor, torch.as_tensor = before


def _stacked(data: Any, tensor: Any) -> Any:
    import torch

    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, tuple | list):
        parts = [_stacked(one, tensor) for one in data]
        whole = all(not one.is_floating_point() for one in parts)
        return torch.stack([one if whole else one.float() for one in parts])
    return tensor(data)
