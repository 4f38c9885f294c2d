"""What planning does beside what it has to, each of which can be left out to see what it gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Passes:
    """Which optimisations a plan has; all of them but for an ablation.

    Attributes
    ----------
    hoisting : bool
        What depends on inputs alone is computed before the first level.
    leaves : bool
        Leaves have a form of their own; otherwise they are nodes whose children are zeros.
    tables : bool
        What depends on words alone is looked up, products of leaves in the first level among it.
    joined_gates : bool
        Products of the same rows are one.
    fused_gathers : bool
        Kernels read rows of tables where they lie; otherwise these are copied together first.
    """

    hoisting: bool = True
    leaves: bool = True
    tables: bool = True
    joined_gates: bool = True
    fused_gathers: bool = True


ALL = Passes()
