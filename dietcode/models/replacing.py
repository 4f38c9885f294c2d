"""What ``dietcode.export`` has in the place of functions and layers of PyTorch, in its own thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

_LOCK = threading.RLock()  # one export at a time: what is replaced is the whole process's
_THREAD = threading.local()


def _is_exporting() -> bool:
    return getattr(_THREAD, "depth", 0) > 0


def _here(own: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is another one in the thread that exports, and itself in all others."""

    @wraps(own)
    def choose(*args: Any, **kwargs: Any) -> Any:
        return (other if _is_exporting() else own)(*args, **kwargs)

    return choose


class _Validates:
    """Whether distributions check their values, where they do not say so themselves: not in an export."""

    def __init__(self, own: bool) -> None:
        self.own = own

    def __get__(self, instance: object, owner: type) -> bool:
        return self.own and not _is_exporting()


def _pooled_as_image(module: Any) -> Callable[[Any], Any]:
    import torch

    def forward(input: Any) -> Any:
        numbers = [
            one[0] if isinstance(one, tuple | list) else one
            for one in (module.kernel_size, module.stride, module.padding, module.dilation)
        ]
        window, stride, padding, dilation = numbers
        return torch.nn.functional.max_pool2d(
            input.unsqueeze(-2), (1, window), (1, stride), (0, padding), (1, dilation), module.ceil_mode
        ).squeeze(-2)

    return forward


def _distances(cdist: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.cdist`` without its choice by size, over 25 rows or not, which would bound the rows."""

    def compute(
        x1: Any,
        x2: Any,
        p: float = 2.0,
        compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
    ) -> Any:
        if compute_mode == "use_mm_for_euclid_dist_if_necessary":
            compute_mode = "donot_use_mm_for_euclid_dist"
        return cdist(x1, x2, p, compute_mode)

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

    Other threads call PyTorch's own functions meanwhile, or wait where they export too. The fast path of
    attention, which changes no result, is off for all.
    """
    import torch
    from torch.nn.modules import transformer

    from dietcode.models.recurrent_operator import CELLS, pack, pad, replaced_forward

    distribution: Any = torch.distributions.Distribution
    functions: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (torch._VF, "_pack_padded_sequence", lambda own: _here(own, pack)),
        (torch._VF, "_pad_packed_sequence", lambda own: _here(own, pad)),
        (torch.nn.functional, "affine_grid", lambda own: _here(own, _affine_grid)),
        (torch, "cdist", lambda own: _here(own, _distances(own))),
        # These look at values; without the second, a mask is applied as it is.
        (distribution, "_validate_args", _Validates),
        (transformer, "_detect_is_causal_mask", lambda own: _here(own, _is_causal)),
    ]
    with _LOCK:
        changed = []
        fused = torch.backends.mha.get_fastpath_enabled()
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in functions]
        _THREAD.depth = getattr(_THREAD, "depth", 0) + 1
        try:
            for (owner, name, own), (_, _, make) in zip(before, functions, strict=True):
                setattr(owner, name, make(own))
            for layer in module.modules():
                if type(layer) in CELLS:
                    other = replaced_forward(layer)
                elif type(layer) is torch.nn.MaxPool1d and not layer.return_indices:
                    other = _pooled_as_image(layer)
                else:
                    continue
                layer.forward = _here(layer.forward, other)
                changed.append(layer)
            torch.backends.mha.set_fastpath_enabled(False)
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            for layer in changed:
                del layer.forward
            for owner, name, own in before:
                setattr(owner, name, own)
            _THREAD.depth -= 1


def _is_causal(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    return is_causal is True
