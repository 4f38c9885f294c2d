"""A block of pointwise functions and reductions along rows, as code generation takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dietcode.search_space.block_problem import BlockProblem
from dietcode.workload.expansion import REDUCTIONS, Primitive, count_flops, expand, gathered_rows
from dietcode.workload.text import clip


@dataclass(frozen=True, eq=False)
class RowProblem(BlockProblem):
    """A grid of rows and columns, where each value is a function of tensors and of other values of its row.

    Its indices are some of `rows`, then all of `columns` or none.
    """

    form: ClassVar[str] = "rows"
    reduction: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def reads(self) -> dict[str, str]:
        """Values that are read, by name: the tensor of each, a table for rows that are gathered."""
        tables = {table for table, _ in self.gathers.values()}
        plain = {name: name for name in self.inputs if name not in tables and name not in self.tables}
        return plain | {gathered_rows(name): table for name, (table, _) in self.gathers.items()}

    @cached_property
    def primitives(self) -> tuple[Primitive, ...]:
        """What the nodes consist of, each after its operands."""
        return expand(self.nodes, self.indices)

    @cached_property
    def reduces(self) -> bool:
        """Whether any value depends on a whole row, so that no row can be split."""
        return any(primitive.kind in REDUCTIONS for primitive in self.primitives)

    def sizes(self, extents: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Return the extents of the roles that all problems have: ``(1, rows, columns, 1)``."""
        return 1, self.product(self.rows, extents), self.product(self.columns, extents), 1

    def flops(self, extents: Mapping[str, Any]) -> Any:
        """Return the operations, one for each primitive and element, as floats: scalars or arrays."""
        counts = count_flops(self.primitives, "".join(self.columns))
        _, rows, columns, _ = self.sizes(extents)
        return 1.0 * rows * (counts["element"] * columns + counts["row"])

    def _check_form(self) -> None:
        grid = (*self.rows, *self.columns)
        tables = {table for table, _ in self.gathers.values()}
        used = {index for table in tables for index in self.indices[table]}
        for name, indices in self.indices.items():
            own = indices.removesuffix("".join(self.columns))
            if name in tables:
                continue
            if not set(own) <= set(self.rows) or len(set(own)) != len(own):
                raise ValueError(f"subscripts {clip(indices)} of {clip(name)}; allowed: of {clip(grid)}")
        if set(grid) | used != set(self.extents):
            raise ValueError(f"extents of {clip(sorted(self.extents))}; allowed: of {clip(grid)}")
