"""What ``dietcode.export`` has in the place of functions and layers of PyTorch, in its own thread alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dietcode.models.own_thread import HereAlone, alone, here
from dietcode.models.size_parts import chunk, one_hot, split, tensor_split


def _pooled_as_image(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Return ``torch.max_pool1d``, whose own operator makes the length constant."""
    import torch

    given = (kernel_size, stride or kernel_size, padding, dilation)
    window, stride, padding, dilation = (one[0] if isinstance(one, tuple | list) else one for one in given)
    return torch.nn.functional.max_pool2d(
        input.unsqueeze(-2), (1, window), (1, stride), (0, padding), (1, dilation), ceil_mode
    ).squeeze(-2)


def _pooled(max_pool1d: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.nn.functional.max_pool1d`` for dynamic lengths."""

    def compute(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        own = (input, kernel_size, stride, padding, dilation)
        if return_indices:
            return max_pool1d(*own, ceil_mode=ceil_mode, return_indices=True)
        return _pooled_as_image(*own, ceil_mode)

    return compute


def _taken(take_along_dim: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.take_along_dim`` for dynamic sizes, which its own operator makes constant."""
    import torch

    def compute(input: Any, indices: Any, dim: int | None = None) -> Any:
        if dim is None or input.dim() != indices.dim():
            return take_along_dim(input, indices, dim)
        dim = dim % input.dim()
        own, wanted = list(input.shape), list(indices.shape)
        for axis, (size, other) in enumerate(zip(own, wanted, strict=True)):
            if axis == dim:
                continue
            if type(other) is int and other == 1:
                wanted[axis] = size
            elif type(size) is int and size == 1:
                own[axis] = other
            else:
                torch._check(size == other)
        # PyTorch wraps positions around, also those behind the end.
        return input.expand(own).gather(dim, (indices % input.shape[dim]).expand(wanted))

    return compute


def _distances(cdist: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.cdist`` without its choice by size, over 25 rows or not, which would bound the rows."""
    import torch

    def compute(
        x1: Any,
        x2: Any,
        p: float = 2.0,
        compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
    ) -> Any:
        if compute_mode == "use_mm_for_euclid_dist_if_necessary":
            # Never by products; its Python is nothing that PyTorch traces within branches.
            return torch.ops.aten.cdist(x1, x2, p, 2)
        return cdist(x1, x2, p, compute_mode)

    return compute


def _evenly_spaced(linspace: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.linspace`` for dynamic numbers of steps, which its own operator makes constant."""
    import torch

    def compute(start: Any, end: Any, steps: Any, **options: Any) -> Any:
        dtype = options.get("dtype") or torch.get_default_dtype()
        if not isinstance(steps, torch.SymInt) or not dtype.is_floating_point:
            return linspace(start, end, steps, **options)
        positions = torch.arange(steps, dtype=dtype)
        step = (end - start) / torch.sym_max(steps - 1, 1)
        # As PyTorch has it, from both ends, so that the last is the end itself.
        return torch.where(
            positions < steps // 2 + steps % 2, start + positions * step, end - (steps - 1 - positions) * step
        ).to(dtype)

    return compute


def _root(sqrt: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``math.sqrt`` for dynamic sizes, which Python would make a constant of."""
    import torch

    def compute(x: Any) -> Any:
        return x**0.5 if type(x) in (torch.SymInt, torch.SymFloat) else sqrt(x)

    return compute


def _affine_grid(theta: Any, size: Sequence[Any], align_corners: bool | None = None) -> Any:
    """Return what ``torch.nn.functional.affine_grid`` does, whose own operator makes sizes constant."""
    import torch

    spatial = size[2:]
    axes = []
    for number, extent in enumerate(spatial):
        steps = 2 * torch.arange(extent, dtype=theta.dtype) + (1 - extent)
        positions = steps / (torch.sym_max(extent - 1, 1) if align_corners else extent)
        axes.append(
            positions.reshape([-1 if k == number else 1 for k in range(len(spatial))]).expand(spatial)
        )
    grid = torch.stack([*axes[::-1], torch.ones_like(axes[0])], -1)
    found = grid.reshape(1, -1, len(spatial) + 1) @ theta.transpose(1, 2)
    return found.reshape(theta.shape[0], *spatial, len(spatial))


@contextmanager
def replaced(module: Any) -> Iterator[None]:
    """Let layers of a module do what can be exported, for as long as this lasts, in this thread.

    Other threads call PyTorch's own functions meanwhile, or wait where they export too.
    """
    import torch
    from torch.nn.modules import transformer

    from dietcode.models.recurrent_operator import CELLS, pack, pad, replaced_forward

    distribution: Any = torch.distributions.Distribution
    functions: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (torch._VF, "_pack_padded_sequence", lambda own: here(pack, own)),
        (torch._VF, "_pad_packed_sequence", lambda own: here(pad, own)),
        (torch.nn.functional, "affine_grid", lambda own: here(_affine_grid, own)),
        (torch.backends.mha, "get_fastpath_enabled", lambda own: here(_never, own)),
        (torch, "cdist", lambda own: here(_distances(own), own)),
        (torch, "linspace", lambda own: here(_evenly_spaced(own), own)),
        (math, "sqrt", lambda own: here(_root(own), own)),
        (torch, "take_along_dim", lambda own: here(_taken(own), own)),
        (torch.Tensor, "take_along_dim", lambda own: here(_taken(own), own)),
        (torch, "max_pool1d", lambda own: here(_pooled_as_image, own)),
        (torch.nn.functional, "max_pool1d", lambda own: here(_pooled(own), own)),
        (torch._VF, "split", lambda own: here(split(own), own)),
        (torch, "chunk", lambda own: here(chunk(own), own)),
        (torch.Tensor, "chunk", lambda own: here(chunk(own), own)),
        (torch, "tensor_split", lambda own: here(tensor_split(own), own)),
        (torch.Tensor, "tensor_split", lambda own: here(tensor_split(own), own)),
        (torch.nn.functional, "one_hot", lambda own: here(one_hot(own), own)),
        # These look at values; without the second, a mask is applied as it is.
        (distribution, "_validate_args", lambda own: HereAlone(False, own)),
        (transformer, "_detect_is_causal_mask", lambda own: here(_is_causal, own)),
    ]
    with alone():
        changed = []
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in functions]
        try:
            for (owner, name, own), (_, _, make) in zip(before, functions, strict=True):
                setattr(owner, name, make(own))
            for layer in module.modules():
                if type(layer) in CELLS:
                    layer.forward = here(replaced_forward(layer), layer.forward)
                    changed.append(layer)
            yield
        finally:
            for layer in changed:
                del layer.forward
            for owner, name, own in before:
                setattr(owner, name, own)


def _is_causal(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    return is_causal is True


def _never() -> bool:
    return False
