"""A block of products of tensors over the same rows, and of pointwise functions of what they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.problem import PackedLayout
from dietcode.search_space.rows.problem import RowProblem
from dietcode.workload.block import BlockNode
from dietcode.workload.operators import MAX_GATES, OPERATORS
from dietcode.workload.products import Halves, ProductPlan, Read, plan_products
from dietcode.workload.text import clip


@dataclass(frozen=True, eq=False)
class ProductProblem(BlockProblem):
    """Sums of products at each row and column, ``Σ_k A[m, k] · B[n, k]``, and pointwise functions of them.

    Indices that slices take apart, the gates, are neither rows nor columns.
    """

    form: ClassVar[str] = "products"

    @classmethod
    def packable(
        cls,
        constants: tuple[str, ...],
        indices: Mapping[str, str],
        nodes: Mapping[str, BlockNode],
        extents: Mapping[str, int | None],
    ) -> tuple[str, ...]:
        """Return the constants that products read alone, and all of whose extents are fixed.

        A constant is packed before a call tells any extent.
        """
        read: dict[bool, set[Any]] = {True: set(), False: set()}
        for node in nodes.values():
            read[OPERATORS[node.operator].is_product].update(node.operands)
        fits = (name in read[True] and name not in read[False] for name in constants)
        fixed = (all(extents[index] is not None for index in indices[name]) for name in constants)
        found = [name for name, ok, known in zip(constants, fits, fixed, strict=True) if ok and known]
        columns = [name for name in found if _is_of_columns(name, indices, nodes)]
        return tuple(columns)

    @cached_property
    def halves(self) -> Halves:
        """The nodes before any reduction along rows, and the others."""
        return Halves.of(self.nodes, self.outputs)

    @cached_property
    def plan(self) -> ProductPlan:
        """What is computed at each row and column before any reduction."""
        return plan_products(self.nodes, self.indices, self.outputs, "".join(self.columns))

    @cached_property
    def rest(self) -> RowProblem | None:
        """What follows the first reduction along rows, over what was computed before; None without one."""
        halves, kept = self.halves, self.kept
        if not halves.after:
            return None
        into = {name: own for name, own in self.into.items() if name in halves.after}
        written = [name for own in into.values() for name in own]
        inputs = tuple(dict.fromkeys((*halves.inputs, *written)))
        used = {index for name in written for index in self.indices[name]}
        return RowProblem(
            inputs=inputs,
            outputs=tuple(name for name in self.outputs if name in halves.after),
            indices={name: self.indices[name] for name in (*inputs, *halves.after)},
            nodes=dict(halves.after),
            rows=self.rows,
            columns=self.columns,
            extents={k: v for k, v in self.extents.items() if k in used or k in (*self.rows, *self.columns)},
            into=into,
            dtypes={k: v for k, v in self.dtypes.items() if k in (*inputs, *halves.after) and k not in kept},
        )

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """Outputs in half precision that `rest` reads: what is set aside of them is in float32."""
        return tuple(name for name in self.halves.inputs if name in self.outputs and name in self.dtypes)

    @cached_property
    def gates(self) -> tuple[str, ...]:
        """Indices that slices take apart."""
        axes = (node.attribute("axis") for node in self.nodes.values() if node.operator == "slice")
        return tuple(dict.fromkeys(axes))

    @cached_property
    def reduction(self) -> tuple[str, ...]:
        """The indices that are summed over, of all products."""
        return tuple(dict.fromkeys("".join(term.reduction for term, _ in self.plan.terms)))

    def layout(self, tensor: str) -> PackedLayout:
        """Return the layout that kernels read a column tensor in: panels of its columns, gates innermost."""
        own = self.indices[tensor]
        gates = tuple(index for index in own if index in self.gates)
        reduction = tuple(k for k in own if k not in (*self.columns, *gates))
        return PackedLayout((), self.columns, (*reduction, *gates), f"pack_{tensor}")

    @property
    def packed(self) -> dict[str, PackedLayout]:
        """Layouts of `constants`."""
        return {name: self.layout(name) for name in self.constants}

    @cached_property
    def column_tensors(self) -> tuple[str, ...]:
        """Tensors that products read in panels of columns."""
        return tuple(dict.fromkeys(term.columns for term, _ in self.plan.terms))

    def is_of_rows(self, read: Read) -> bool:
        """Return whether what is read differs from row to row, and from column to column."""
        has_rows = read.positions is not None or not set(self.rows).isdisjoint(read.indices)
        return has_rows and self.is_wide(read.indices)

    def draw(self, tensor: str, extents: Mapping[str, Any], rng: np.random.Generator) -> Any:
        """Return random values; of a column tensor over √k, so that sums over k are of the size of 1.

        Functions of larger ones are saturated, or so steep that they magnify rounding errors.
        """
        values = super().draw(tensor, extents, rng)
        if tensor not in self.column_tensors:
            return values
        depth = self.product([k for k in self.layout(tensor).reduction if k not in self.gates], extents)
        return values * np.float32(float(depth) ** -0.5)

    def sizes(self, extents: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Return ``(1, rows, columns, reduction)``, the last once for each set of accumulators."""
        rows, columns = self.product(self.rows, extents), self.product(self.columns, extents)
        depth = sum(len(to) * self.product(term.reduction, extents) for term, to in self.plan.terms)
        return 1, rows, columns, depth

    def flops(self, extents: Mapping[str, Any]) -> Any:
        """Return the operations as floats: two for each multiply-add, one for each function of an element."""
        _, rows, columns, depth = self.sizes(extents)
        later = 0.0 if self.rest is None else self.rest.flops(extents)
        return 1.0 * rows * columns * (2.0 * depth + len(self.plan.primitives)) + later

    def _check_form(self) -> None:
        if not any(OPERATORS[node.operator].is_product for node in self.nodes.values()):
            raise ValueError(f"nodes {clip(list(self.nodes))}; allowed: at least one einsum")
        for gate in self.gates:
            if not 1 <= (self.extents.get(gate) or 0) <= MAX_GATES:
                raise ValueError(
                    f"extent {clip(self.extents.get(gate))} of {gate}; allowed: 1 to {MAX_GATES}"
                )
        used = {index for own in self.indices.values() for index in own}
        if used != set(self.extents) or not {*self.rows, *self.columns} <= used:
            raise ValueError(f"extents of {clip(sorted(self.extents))}; allowed: of {clip(sorted(used))}")
        if not set(self.constants) <= set(self.column_tensors):
            raise ValueError(f"constants {clip(self.constants)}; allowed: of {clip(self.column_tensors)}")


def _is_of_columns(name: str, indices: Mapping[str, str], nodes: Mapping[str, BlockNode]) -> bool:
    """Return whether a tensor is the operand with the last index of each product that reads it."""
    products = [
        node for node in nodes.values() if OPERATORS[node.operator].is_product and name in node.operands
    ]
    return all(str(node.attribute("dims"))[-1] in indices[name] for node in products)
