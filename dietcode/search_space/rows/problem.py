"""A block of pointwise functions and reductions along rows, as code generation takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.problem import Window
from dietcode.workload.block_forms import inner_rows, turned_rows
from dietcode.workload.expansion import (
    REDUCTIONS,
    ROWS,
    Primitive,
    count_flops,
    expand,
    own_rows,
    read_of_rotated,
)
from dietcode.workload.pooling import POOLINGS, PoolAxis, pool_axes, taps
from dietcode.workload.text import clip

_FROM_MEMORY = ("gather", "slice", "transpose", "rotate", *POOLINGS)


@dataclass(frozen=True)
class RowRead:
    """How a value is read from a tensor, a row at a time.

    Attributes
    ----------
    positions : str
        The tensor that tells the row of a table; empty for other tensors.
    at : tuple of (str, int)
        Indices of the tensor at one position each.
    taps : tuple of (PoolAxis, int)
        A position within the window of each axis that one slides over.
    shift : int
        How far a column is to the right of where it is read; those that leave at the end begin the row.
    negates : bool
        Whether these are negated.
    within : int
        Columns of a group that is shifted by itself; 0 for the whole row.
    reorders : bool
        Whether the tensor has its indices in another order than the grid.
    """

    tensor: str
    positions: str = ""
    at: tuple[tuple[str, int], ...] = ()
    taps: tuple[tuple[PoolAxis, int], ...] = ()
    shift: int = 0
    negates: bool = False
    within: int = 0
    reorders: bool = False


@dataclass(frozen=True, eq=False)
class RowProblem(BlockProblem):
    """A grid of rows and columns, where each value is a function of tensors and of other values of its row.

    Its indices are some of `rows` and of `columns`, those of `columns` next to each other.
    """

    form: ClassVar[str] = "rows"
    reduction: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def reads(self) -> dict[str, RowRead]:
        """Values that are read, by name."""
        special = {name: node for name, node in self.nodes.items() if node.operator in _FROM_MEMORY}
        plain = {o for name, node in self.nodes.items() if name not in special for o in node.operands}
        found = {name: RowRead(name) for name in self.inputs if name in plain}
        for name, node in special.items():
            tensor = str(node.operands[0])
            if node.operator == "gather":
                found[own_rows(name)] = RowRead(tensor, positions=str(node.operands[1]))
            elif node.operator == "slice":
                found[own_rows(name)] = RowRead(tensor, at=((node.attribute("axis"), node.attribute("at")),))
            elif node.operator == "transpose":
                found[own_rows(name)] = RowRead(tensor, reorders=True)
            elif node.operator == "rotate" and tensor not in self.inputs:
                shift, within = node.attribute("by"), node.attribute("within") or 0
                every = dict.fromkeys(o for p in self.primitives for o in p.operands if isinstance(o, str))
                for operand in every:
                    source = read_of_rotated(operand)
                    if source is not None and source[0] == name:
                        base = found.get(source[1], RowRead(source[1]))
                        found[operand] = replace(base, shift=shift, within=within)
            elif node.operator == "rotate":
                shift, negates = node.attribute("by"), node.attribute("negate")
                within = node.attribute("within") or 0
                found[own_rows(name)] = RowRead(tensor, shift=shift, negates=negates, within=within)
            else:
                axes = self.pools[name]
                for tap in taps(axes):
                    found[own_rows(name, tap)] = RowRead(tensor, taps=tuple(zip(axes, tap, strict=True)))
        return found

    def seen_as(self, name: str) -> str:
        """Return the indices that a value which is read has in the grid."""
        return self.indices[name.partition(ROWS)[0]]

    @cached_property
    def pools(self) -> dict[str, tuple[PoolAxis, ...]]:
        """The axes that the window of each node that pools slides over."""
        return {
            name: pool_axes(node, self.indices[str(node.operands[0])])
            for name, node in self.nodes.items()
            if node.operator in POOLINGS
        }

    @property
    def windows(self) -> tuple[Window, ...]:
        """What slides over tensors."""
        every = (one for axes in self.pools.values() for one in axes)
        return tuple(
            Window(one.axis, one.output, "", one.stride, 1, one.padding, one.padding_after) for one in every
        )

    @cached_property
    def primitives(self) -> tuple[Primitive, ...]:
        """What the nodes consist of, each after its operands."""
        return expand(self.nodes, self.indices)

    @cached_property
    def inner(self) -> tuple[str, ...]:
        """The row indices that follow the columns in tensors, whose vectors lie across rows; mostly none."""
        grid = set(self.rows + self.columns)
        turned = {read.tensor for read in self.reads.values() if read.reorders}
        every = [indices for name, indices in self.indices.items() if name not in turned]
        own = [indices for indices in every if set(indices) <= grid]
        return tuple(inner_rows(own, "".join(self.columns)))

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The other row indices."""
        return tuple(index for index in self.rows if index not in self.inner)

    @cached_property
    def turned(self) -> tuple[str, ...]:
        """The row indices that tensors are transposed from: these lie next to each other there."""
        own = [self.indices[read.tensor] for read in self.reads.values() if read.reorders]
        return tuple(turned_rows(own, "".join(self.rows), "".join(self.columns)))

    def turns(self, read: RowRead) -> bool:
        """Whether the columns of what is read do not lie next to each other."""
        return read.reorders and not self.indices[read.tensor].endswith("".join(self.columns))

    def is_wide(self, indices: str) -> bool:
        """Whether a value of these indices differs from column to column."""
        return bool(set(indices) & set(self.columns))

    def is_part_of_columns(self, indices: str) -> bool:
        """Whether a tensor of these indices has some of those of the columns, not all."""
        return 0 < len(set(indices) & set(self.columns)) < len(self.columns)

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
        tables = self.row_tables | {str(self.nodes[name].operands[0]) for name in self.pools}
        tables |= {read.tensor for read in self.reads.values() if read.reorders or read.at}
        used = {index for table in tables for index in self.indices[table]}
        self._check_reads()
        for name, indices in self.indices.items():
            own = "".join(index for index in indices if index not in self.columns)
            run = "".join(index for index in indices if index in self.columns)
            if name in tables:
                continue
            fits = run in indices and run in "".join(self.columns)
            if not set(own) <= set(self.rows) or len(set(own)) != len(own) or not fits:
                raise ValueError(f"subscripts {clip(indices)} of {clip(name)}; allowed: of {clip(grid)}")
        if set(grid) | used != set(self.extents):
            raise ValueError(f"extents of {clip(sorted(self.extents))}; allowed: of {clip(grid)}")
        turning = [read for read in self.reads.values() if self.turns(read)]
        if turning and (self.reduces or not self.turned):
            raise ValueError(f"{clip(turning[0].tensor)} transposed; allowed: where nothing is reduced")

    def _check_reads(self) -> None:
        """Refuse what reads no tensor in its own way, and rotations that are not fixed."""
        fixed = self.product(self.columns, {k: self.extents.get(k) or 0 for k in self.columns})
        for read in self.reads.values():
            fits = read.shift < (read.within or fixed or 1) and read.within <= fixed
            fits = fits and all(at < (self.extents.get(index) or 0) for index, at in read.at)
            if read.tensor not in self.inputs or not fits:
                raise ValueError(
                    f"{clip(read.tensor)} by {read.shift}; allowed: an input, by less than a row"
                )
