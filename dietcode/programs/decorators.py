"""Decorators that make no difference to what a function returns."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

DECORATORS = "torch.no_grad(), functools.cache; call what it does in the text"  # that are allowed
_CONTEXTS = str(Path("torch", "utils", "_contextlib.py"))  # where no_grad and inference_mode wrap functions


def undecorated(function: Any) -> Any:
    """Return a function without ``torch.no_grad()``, ``functools.cache`` and the like around it."""
    while hasattr(function, "__wrapped__") and not inspect.ismethod(function):
        code = getattr(function, "__code__", None)
        is_of_torch = code is not None and code.co_filename.endswith(_CONTEXTS)
        if not is_of_torch and not isinstance(function, functools._lru_cache_wrapper):
            return function
        function = function.__wrapped__
    return function
