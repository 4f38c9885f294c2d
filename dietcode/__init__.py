"""DietCode: one tuning run for a whole range of shapes.

``dietcode.load`` opens a tuned library and needs no compiler. The packages, in processing order:
``workload``, ``target``, ``search_space``, ``measure``, ``cost_model``, ``dispatcher``, ``library``,
``tuner``; ``runtime`` is the half that a deployed program imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dietcode._version import __version__

if TYPE_CHECKING:
    from dietcode.runtime.library import Library, load

__all__ = ["Library", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the runtime on first use, so that ``import dietcode`` stays cheap."""
    if name in {"Library", "load"}:
        from dietcode.runtime import library

        return getattr(library, name)
    raise AttributeError(f"module 'dietcode' has no attribute {name!r}")
