"""The dispatch rule in the form that code generation for the host takes."""

from __future__ import annotations

from typing import TypeAlias

# A category; or (variable, threshold, tree where variable ≤ threshold, tree elsewhere); or
# (variable, "%", divisor, tree where variable is a multiple of it, tree elsewhere).
DispatchTree: TypeAlias = (
    "int | tuple[str, int, DispatchTree, DispatchTree] | tuple[str, str, int, DispatchTree, DispatchTree]"
)
