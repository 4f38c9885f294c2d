"""A block of pointwise functions and reductions along rows, as code generation takes it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dietcode.workload.block import BlockNode, read_node
from dietcode.workload.dtypes import STORAGE
from dietcode.workload.expansion import REDUCTIONS, Primitive, count_flops, expand
from dietcode.workload.field_checks import MAX_EXTENT
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip

_DTYPE = "float32"
_FLOAT_BYTES = 4


@dataclass(frozen=True, eq=False)
class RowProblem:
    """A grid of rows and columns, where each value is a function of tensors and of other values of its row.

    Attributes
    ----------
    inputs : tuple of str
        Tensors that a kernel reads, in argument order.
    outputs : tuple of str
        Nodes that it writes, in argument order.
    indices : dict of str to str
        Of every tensor and node: some of `rows`, then all of `columns` or none.
    nodes : dict of str to BlockNode
        Each after its operands.
    rows, columns : tuple of str
        Indices of the grid; each role is flattened.
    extents : dict of str to int or None
        Extent of each index; None where it is known only at run time.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    indices: dict[str, str]
    nodes: dict[str, BlockNode]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    extents: dict[str, int | None]

    form: ClassVar[str] = "rows"
    batch: ClassVar[tuple[str, ...]] = ()
    reduction: ClassVar[tuple[str, ...]] = ()
    windows: ClassVar[tuple[Any, ...]] = ()
    column_operand: ClassVar[str | None] = None
    column_operand_constant: ClassVar[bool] = False

    @classmethod
    def of_spec(cls, spec: Spec) -> RowProblem:
        """Return the problem of a spec with a block."""
        graph = spec.block
        assert graph is not None
        return cls(
            inputs=tuple(spec.tensors),
            outputs=graph.outputs,
            indices=dict(graph.indices),
            nodes=dict(graph.nodes),
            rows=tuple(graph.rows),
            columns=tuple(graph.columns),
            extents={k: d.constant_value() if d.is_constant else None for k, d in spec.dims_parsed.items()},
        )

    @cached_property
    def primitives(self) -> tuple[Primitive, ...]:
        """What the nodes consist of, each after its operands."""
        return expand(self.nodes, self.indices)

    @cached_property
    def reduces(self) -> bool:
        """Whether any value depends on a whole row, so that no row can be split."""
        return any(primitive.kind in REDUCTIONS for primitive in self.primitives)

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Indices whose extents are arguments of a kernel, in alphabetical order."""
        return tuple(sorted(index for index, extent in self.extents.items() if extent is None))

    def is_wide(self, indices: str) -> bool:
        """Whether a value of these indices differs from column to column."""
        return indices.endswith("".join(self.columns))

    def dtype(self, tensor: str) -> str:
        """Return the dtype in which callers hold `tensor`."""
        return _DTYPE

    def storage(self, tensor: str) -> np.dtype[Any]:
        """Return the dtype in which generated code holds `tensor`."""
        return STORAGE[_DTYPE]

    def shape(self, tensor: str, extents: Mapping[str, Any]) -> list[Any]:
        """Return the shape of `tensor`."""
        return [extents[index] for index in self.indices[tensor]]

    def product(self, indices: tuple[str, ...], extents: Mapping[str, Any]) -> Any:
        """Return the product of the extents of `indices`: scalars or arrays; 1 without indices."""
        result: Any = 1
        for index in indices:
            result = result * extents[index]
        return result

    def sizes(self, extents: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Return the extents of the roles that all problems have: ``(1, rows, columns, 1)``."""
        return 1, self.product(self.rows, extents), self.product(self.columns, extents), 1

    def flops(self, extents: Mapping[str, Any]) -> Any:
        """Return the operations, one for each primitive and element, as floats: scalars or arrays."""
        counts = count_flops(self.primitives, "".join(self.columns))
        _, rows, columns, _ = self.sizes(extents)
        return 1.0 * rows * (counts["element"] * columns + counts["row"])

    def num_bytes(self, extents: Mapping[str, Any]) -> Any:
        """Return the bytes of all tensors once: what a call moves at least."""
        names = (*self.inputs, *self.outputs)
        return sum(1.0 * _FLOAT_BYTES * self.product(tuple(self.indices[n]), extents) for n in names)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which `from_json` reads."""
        return {
            "form": self.form,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "subscripts": dict(self.indices),
            "nodes": {name: node.to_json() for name, node in self.nodes.items()},
            "order": list(self.nodes),
            "rows": list(self.rows),
            "columns": list(self.columns),
            "extents": dict(self.extents),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RowProblem:
        """Read what `to_json` returns.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no problem.
        """
        problem = cls(
            inputs=tuple(str(name) for name in data["inputs"]),
            outputs=tuple(str(name) for name in data["outputs"]),
            indices={str(name): str(indices) for name, indices in data["subscripts"].items()},
            nodes={str(name): read_node(str(name), data["nodes"][name]) for name in data["order"]},
            rows=tuple(str(k) for k in data["rows"]),
            columns=tuple(str(k) for k in data["columns"]),
            extents={str(k): None if v is None else operator.index(v) for k, v in data["extents"].items()},
        )
        problem.check()
        return problem

    def check(self) -> None:
        """Refuse what no spec lowers to.

        Raises
        ------
        ValueError
            Names, indices and extents do not fit together.
        """
        known = set(self.inputs)
        for name, node in self.nodes.items():
            if not {operand for operand in node.operands if isinstance(operand, str)} <= known:
                raise ValueError(
                    f"node {clip(name)} of {clip(node.operands)}; allowed: of {clip(sorted(known))}"
                )
            known.add(name)
        grid = (*self.rows, *self.columns)
        if not self.inputs or not self.outputs or not set(self.outputs) <= set(self.nodes):
            raise ValueError(f"inputs {clip(self.inputs)}, outputs {clip(self.outputs)}")
        if known != set(self.indices) or len(set(grid)) != len(grid) or not self.columns:
            raise ValueError(f"rows {clip(self.rows)}, columns {clip(self.columns)} of {clip(self.indices)}")
        for name, indices in self.indices.items():
            own = indices.removesuffix("".join(self.columns))
            if not set(own) <= set(self.rows) or len(set(own)) != len(own):
                raise ValueError(f"subscripts {clip(indices)} of {clip(name)}; allowed: of {clip(grid)}")
        if set(grid) != set(self.extents):
            raise ValueError(f"extents of {clip(sorted(self.extents))}; allowed: of {clip(grid)}")
        for index, extent in self.extents.items():
            if extent is not None and not 1 <= extent <= MAX_EXTENT:
                raise ValueError(f"extent {clip(extent)} of {index}; allowed: 1 to {MAX_EXTENT}")
