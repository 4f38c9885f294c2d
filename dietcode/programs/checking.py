"""Whether a program as data gives what its function gives."""

from __future__ import annotations

import math
from typing import Any

from dietcode.programs.interpreter import Record
from dietcode.workload.text import clip

_TOLERANCE = 1e-3  # of the largest number of a tensor: sums may be taken in another order


def difference(found: Any, wanted: Any) -> str | None:
    """Return in words where two results differ; None where they do not."""
    import torch

    waiting = [(found, wanted)]
    while waiting:
        own, right = waiting.pop()
        if isinstance(right, torch.Tensor):
            is_tensor = not isinstance(own, list | tuple)  # of rows, where a function stacks them
            own = torch.as_tensor(own) if is_tensor else own
            given = f"a tensor {list(own.shape)}" if is_tensor else f"a list of {len(own)}"
            if given != f"a tensor {list(right.shape)}":
                return f"{given}, and not a tensor {list(right.shape)}"
            scale = max(1.0, float(right.abs().max())) if right.numel() else 1.0
            close = torch.allclose(
                own.double(), right.double(), rtol=0, atol=_TOLERANCE * scale, equal_nan=True
            )
            if not close:
                return f"a tensor that differs by {float((own.double() - right.double()).abs().max()):.3g}"
        elif isinstance(right, list) or (isinstance(right, tuple) and not hasattr(right, "_fields")):
            if type(own) is not (list if isinstance(right, list) else tuple) or len(own) != len(right):
                return f"{clip(own)}, and not {clip(right)}"
            waiting += reversed(list(zip(own, right, strict=True)))
        elif isinstance(right, dict):
            if type(own) is not dict or list(own) != list(right):
                return f"{clip(own)}, and not {clip(right)}"
            waiting += reversed([(own[key], value) for key, value in right.items()])
        elif isinstance(own, Record):
            waiting += [(value, getattr(right, name)) for name, value in own.fields.items()]
        elif type(own) is not type(right) or not (own is right or _are_close(own, right)):
            return f"{clip(own)}, and not {clip(right)}"
    return None


def _are_close(own: Any, right: Any) -> bool:
    if own == right or not isinstance(own, float):
        return bool(own == right)
    return abs(own - right) <= _TOLERANCE * max(1.0, abs(right)) or (math.isnan(own) and math.isnan(right))
