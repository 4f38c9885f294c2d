"""The dispatch rule as the host side of a library takes it."""

from __future__ import annotations

from typing import TypeAlias

# A category, or (variable, threshold, tree where variable ≤ threshold, tree elsewhere).
DispatchTree: TypeAlias = "int | tuple[str, int, DispatchTree, DispatchTree]"
