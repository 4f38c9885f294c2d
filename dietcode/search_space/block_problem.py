"""What problems that are blocks have in common, whatever their form."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from dietcode.search_space.problem import PackedLayout, Window
from dietcode.workload.block import BlockNode, read_node
from dietcode.workload.dtypes import INDEX_DTYPE, INPUT_DTYPES, STORAGE
from dietcode.workload.field_checks import MAX_EXTENT
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip

_DTYPE = "float32"
_ABOVE_ZERO = frozenset({"sqrt", "rsqrt", "log"})
_NEVER_BELOW_ZERO = frozenset({"abs", "square", "exp", "sigmoid", "relu", "softmax"})
_LEAST = 0.01  # of random values whose roots and logarithms are taken


@dataclass(frozen=True, eq=False)
class BlockProblem(ABC):
    """A graph of operators on a grid of rows and columns.

    Attributes
    ----------
    inputs : tuple of str
        Tensors that a kernel reads, in argument order.
    outputs : tuple of str
        Nodes that it writes, in argument order.
    indices : dict of str to str
        Of every tensor and node.
    nodes : dict of str to BlockNode
        Each after its operands.
    rows, columns : tuple of str
        Indices of the grid; each role is flattened.
    extents : dict of str to int or None
        Extent of each index; None where it is known only at run time.
    constants : tuple of str
        Inputs that are packed ahead of time.
    into : dict of str to (str, str)
        Of each output that is written to rows of a table, the table and the positions, both inputs; those
        outside of the table are left out.
    dtypes : dict of str to str
        Of inputs and outputs that callers hold in half precision; sums and functions are in float32.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    indices: dict[str, str]
    nodes: dict[str, BlockNode]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    extents: dict[str, int | None]
    constants: tuple[str, ...] = ()
    into: dict[str, tuple[str, str]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)

    form: ClassVar[str]
    batch: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of_spec(cls, spec: Spec) -> Self:
        """Return the problem of a spec with a block of this form."""
        graph = spec.block
        assert graph is not None
        extents = {k: d.constant_value() if d.is_constant else None for k, d in spec.dims_parsed.items()}
        return cls(
            inputs=tuple(spec.tensors),
            outputs=graph.outputs,
            indices=dict(graph.indices),
            nodes=dict(graph.nodes),
            rows=tuple(graph.rows),
            columns=tuple(graph.columns),
            extents=extents,
            constants=cls.packable(spec.constants, graph.indices, graph.nodes, extents),
            into=dict(graph.into),
            dtypes=_half_dtypes(spec, graph.outputs),
        )

    @classmethod
    def packable(
        cls,
        constants: tuple[str, ...],
        indices: Mapping[str, str],
        nodes: Mapping[str, BlockNode],
        extents: Mapping[str, int | None],
    ) -> tuple[str, ...]:
        """Return which of the constant tensors are packed ahead; none by default."""
        return ()

    @property
    def operand_dtype(self) -> str:
        """The dtype of the inputs, positions apart."""
        return next((self.dtypes[name] for name in self.inputs if name in self.dtypes), _DTYPE)

    @property
    def packed(self) -> dict[str, PackedLayout]:
        """Layouts of `constants`."""
        return {}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The inputs in the order of the spec, in which callers of a library pass them."""
        return self.inputs

    def role_indices(self, tensor: str) -> str:
        """Return the indices of a tensor."""
        return self.indices[tensor]

    def axes(self, tensor: str) -> list[str]:
        """Return the index of each axis of a tensor as callers hold it."""
        return list(self.stored_indices(tensor))

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Indices whose extents are arguments of a kernel, in alphabetical order."""
        return tuple(sorted(index for index, extent in self.extents.items() if extent is None))

    @cached_property
    def gathers(self) -> dict[str, tuple[str, str]]:
        """Of each node that gathers rows, the table and the tensor of positions."""
        found = {name: node.operands for name, node in self.nodes.items() if node.operator == "gather"}
        return {name: (str(table), str(positions)) for name, (table, positions) in found.items()}

    @cached_property
    def tables(self) -> dict[str, list[str]]:
        """Of each tensor of positions, the tables that they are rows of."""
        found: dict[str, list[str]] = {}
        for table, positions in self.gathers.values():
            found.setdefault(positions, []).append(table)
        return found

    @cached_property
    def lengths(self) -> dict[str, str]:
        """Of each tensor of lengths, the index that they are lengths along."""
        hiding = [node for node in self.nodes.values() if node.operator == "hide"]
        return {str(node.operands[1]): str(node.attribute("axis")) for node in hiding}

    @cached_property
    def row_tables(self) -> set[str]:
        """Inputs that lie not on the grid, since rows of them are gathered or written."""
        written = {table for table, _ in self.into.values()}
        return written | {table for table, _ in self.gathers.values()}

    @cached_property
    def targets(self) -> dict[str, str]:
        """Of each tensor of positions that rows are written at, the table."""
        return {at: table for table, at in self.into.values()}

    def stored_indices(self, tensor: str) -> str:
        """Return the indices of a tensor as callers hold it: the table's for an output that goes to one."""
        return self.indices[self.into[tensor][0] if tensor in self.into else tensor]

    def is_wide(self, indices: str) -> bool:
        """Whether a value of these indices differs from column to column."""
        return indices.endswith("".join(self.columns))

    def dtype(self, tensor: str) -> str:
        """Return the dtype in which callers hold `tensor`."""
        is_integer = tensor in self.tables or tensor in self.targets or tensor in self.lengths
        return INDEX_DTYPE if is_integer else self.dtypes.get(tensor, _DTYPE)

    def draw(self, tensor: str, extents: Mapping[str, Any], rng: np.random.Generator) -> Any:
        """Return random values for an input, of the size of those of models; positions are in the tables.

        Those that rows are written at are each another one, outside of a table that has too few. Of a table
        that rows are gathered from as well they are in the second half, and those are in the first one: a
        call must not write what it reads. Lengths are nearly whole, so that a call takes about as long for
        all of them.
        """
        shape = [int(extent) for extent in self.shape(tensor, extents)]
        if tensor in self.targets:
            table, count = self.targets[tensor], math.prod(shape)
            num_rows = int(extents[self.indices[table][0]])
            is_gathered = any(table in own for own in self.tables.values())
            first = self._num_read(table, extents) if is_gathered else 0
            found = first + rng.permutation(max(count, num_rows - first))[:count]
            return found.reshape(shape).astype(np.int32)
        if tensor in self.tables:
            least = min(self._num_read(table, extents) for table in self.tables[tensor])
            return rng.integers(0, least, shape, dtype=np.int32)
        if tensor in self.lengths:
            extent = int(extents[self.lengths[tensor]])
            return rng.integers(extent - extent // 8, extent + 1, shape, dtype=np.int32)
        values = rng.standard_normal(shape, dtype=np.float32)
        return np.abs(values) + np.float32(_LEAST) if tensor in self.above_zero else values

    def _num_read(self, table: str, extents: Mapping[str, Any]) -> int:
        """Return how many rows of a table `draw` reads, the first ones: half of one that is written to."""
        num_rows = int(extents[self.indices[table][0]])
        return (num_rows + 1) // 2 if table in self.targets.values() else num_rows

    @cached_property
    def above_zero(self) -> frozenset[str]:
        """The inputs that roots and logarithms are taken of: below 0 these would be no numbers."""
        found: set[str] = set()
        waiting = [
            one for node in self.nodes.values() if node.operator in _ABOVE_ZERO for one in node.operands
        ]
        while waiting:
            name = waiting.pop()
            node = self.nodes.get(name) if isinstance(name, str) and name not in found else None
            if isinstance(name, str):
                found.add(name)
            if node is not None and node.operator not in _NEVER_BELOW_ZERO:
                waiting += node.operands
        return frozenset(found & set(self.inputs))

    def storage(self, tensor: str) -> np.dtype[Any]:
        """Return the dtype in which generated code holds `tensor`."""
        return STORAGE[self.dtype(tensor)]

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows that slide over tensors; none, in most blocks."""
        return ()

    def window_over(self, axis: str) -> Window | None:
        """Return the window that slides over an axis, if any."""
        return next((window for window in self.windows if window.axis == axis), None)

    def shape(self, tensor: str, extents: Mapping[str, Any]) -> list[Any]:
        """Return the shape of `tensor`."""
        return [extents[index] for index in self.stored_indices(tensor)]

    def product(self, indices: Iterable[str], extents: Mapping[str, Any]) -> Any:
        """Return the product of the extents of `indices`: scalars or arrays; 1 without indices."""
        result: Any = 1
        for index in indices:
            result = result * extents[index]
        return result

    @abstractmethod
    def flops(self, extents: Mapping[str, Any]) -> Any:
        """Return the operations of a call as floats: scalars or arrays."""

    def num_bytes(self, extents: Mapping[str, Any]) -> Any:
        """Return the bytes of all tensors once: what a call moves at least."""
        names = (*(n for n in self.inputs if n not in self.row_tables), *self.outputs, *self.gathers)
        return sum(1.0 * self._itemsize(n) * self.product(self.indices[n], extents) for n in names)

    def _itemsize(self, name: str) -> int:
        """Return the bytes of an element of a tensor, or of the table that a node gathers from."""
        return self.storage(self.gathers[name][0] if name in self.gathers else name).itemsize

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which `from_json` reads."""
        data = {
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
        data |= {"constants": list(self.constants)} if self.constants else {}
        data |= {"into": {name: list(own) for name, own in self.into.items()}} if self.into else {}
        return data | ({"dtypes": dict(self.dtypes)} if self.dtypes else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
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
            constants=tuple(str(name) for name in data.get("constants", ())),
            into={str(name): (str(own[0]), str(own[1])) for name, own in data.get("into", {}).items()},
            dtypes={str(name): str(dtype) for name, dtype in data.get("dtypes", {}).items()},
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
        if not set(self.constants) <= set(self.inputs):
            raise ValueError(f"constants {clip(self.constants)}; allowed: of {clip(self.inputs)}")
        self._check_into()
        named = (*self.inputs, *self.outputs)
        if not set(self.dtypes) <= set(named) or not set(self.dtypes.values()) <= set(INPUT_DTYPES):
            raise ValueError(
                f"dtypes {clip(self.dtypes)}; allowed: {', '.join(INPUT_DTYPES)} of inputs, outputs"
            )
        if any(self.dtype(name) != self.dtype(table) for name, (table, _) in self.into.items()):
            raise ValueError(f"dtypes {clip(self.dtypes)}; allowed: its table's for what is written to it")
        for index, extent in self.extents.items():
            if extent is not None and not 1 <= extent <= MAX_EXTENT:
                raise ValueError(f"extent {clip(extent)} of {index}; allowed: 1 to {MAX_EXTENT}")
        self._check_form()

    def _check_into(self) -> None:
        for name, own in self.into.items():
            if name not in self.outputs or not set(own) <= set(self.inputs):
                raise ValueError(f"{clip(name)} into {clip(own)}; allowed: outputs, into inputs")
            held, rows = (self.indices[tensor] for tensor in own)
            widths = [[self.extents.get(k) for k in some] for some in (held[1:], self.columns)]
            if widths[0] != widths[1] or self.indices[name] != rows + "".join(self.columns):
                given = f"rows {clip(rows)} of {clip(held)} for {clip(self.indices[name])}"
                raise ValueError(f"{given}; allowed: the same rows and columns")

    @abstractmethod
    def _check_form(self) -> None:
        """Refuse what is of no graph of this form; raises ValueError."""


def _half_dtypes(spec: Spec, outputs: tuple[str, ...]) -> dict[str, str]:
    """Return the dtypes of tensors and outputs in half precision: outputs are of the operands' dtype."""
    if spec.operand_dtype == _DTYPE:
        return {}
    found = {name: tensor.dtype for name, tensor in spec.tensors.items() if tensor.dtype != INDEX_DTYPE}
    return found | dict.fromkeys(outputs, spec.operand_dtype)
