"""Global padding (paper, Figure 7b)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.kernel import Block
from dietcode.search_space.limits import MicroKernel
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.problem import Problem
from dietcode.search_space.tails.base import Tails
from dietcode.search_space.tir import CPU, DTYPE, i64, load, store

_FLOAT_BYTES = 4
_DLPACK_FLOAT = 2


def workspace_bytes(problem: Problem, micro_kernel: MicroKernel, extents: dict[str, int]) -> int:
    """Bytes of the padded row operand and the padded output of one call."""
    batch, rows, columns, reduction = (int(size) for size in problem.sizes(extents))
    padded_rows = -(-rows // micro_kernel.rows) * micro_kernel.rows
    padded_columns = -(-columns // micro_kernel.columns) * micro_kernel.columns
    return batch * padded_rows * (reduction + padded_columns) * _FLOAT_BYTES


@contextmanager
def workspace(shape: tuple[Any, ...]) -> Iterator[Any]:
    """A buffer from TVM's workspace pool, while its user runs.

    What ``T.alloc_buffer`` becomes, written out: StorageRewrite moves a large allocation to the function's
    beginning, out of the scope that says on which device it is, which does not compile.
    """
    num_bytes = functools.reduce(operator.mul, shape) * _FLOAT_BYTES
    call = T.TVMBackendAllocWorkspace(CPU, 0, num_bytes.astype("uint64"), _DLPACK_FLOAT, 8 * _FLOAT_BYTES)
    pointer = T.Bind(ir.Call(call.op, call.args, ret_ty=ir.PointerType(ir.PrimType(DTYPE))))
    with T.If(T.isnullptr(pointer)), T.Then():
        T.evaluate(T.tvm_throw_last_error())
    yield T.decl_buffer(shape, DTYPE, data=pointer)
    T.evaluate(T.TVMBackendFreeWorkspace(CPU, 0, pointer))


class GlobalPadding(Tails):
    """The row operand is copied into whole tiles, tiles run without a check, and the output is copied out.

    The epilogue is applied in the copy, where only what exists is touched. The packed operand is whole
    vectors already; a tile's panels past the last one are clamped, and end in padded columns.
    """

    _rows: Any = None  # padded row operand, [batch, padded rows, reduction]
    _output: Any = None  # padded output, [batch, padded rows, padded columns]

    def _padded(self, size: Any, extent: int) -> Any:
        return ceildiv(size, extent, self.kernel.ops) * extent

    @contextmanager
    def around_tasks(self) -> Iterator[None]:
        """Pad before, unpad after."""
        kernel, tile = self.kernel, self.kernel.tile
        padded_rows = self._padded(kernel.rows, tile.rows)
        padded_columns = self._padded(kernel.columns, tile.columns)
        with (
            workspace((kernel.batch, padded_rows, kernel.reduction)) as self._rows,
            workspace((kernel.batch, padded_rows, padded_columns)) as self._output,
        ):
            self._pad(padded_rows)
            yield
            self._unpad()

    def _pad(self, padded_rows: Any) -> None:
        """Copy the row operand, zero past its end."""
        kernel = self.kernel
        with kernel.tasks() as task:
            rows = kernel.ops.bind(padded_rows)
            with T.serial(*kernel.part(kernel.batch * rows, task, kernel.limits.num_cores)) as index:
                batch, row = self._split(index, rows)
                fetch = kernel.row_fetch(batch, [row])
                with T.If(row < kernel.rows):
                    with T.Then(), T.serial(i64(0), kernel.reduction) as k:
                        store(self._rows, fetch(0, k), [batch, row, k], 1)
                    with T.Else(), T.serial(i64(0), kernel.reduction) as k:
                        store(self._rows, tirx.const(0, DTYPE), [batch, row, k], 1)

    def tile(self, at: Block) -> None:
        """The plain body between the two workspaces."""
        kernel = self.kernel
        accumulators = kernel.accumulators(at)
        kernel.clear(accumulators)
        panels = [tirx.min(at.panel + v, kernel.panels - 1) for v in range(at.vectors)]
        kernel.accumulate(
            accumulators,
            lambda i, k: load(self._rows, [at.batch, at.row + i, k], 1),
            kernel.panel_fetch(at.batch, panels),
        )
        for i, row in enumerate(accumulators):
            for v, accumulator in enumerate(row):
                value = load(accumulator, [0], kernel.lanes)
                index = [at.batch, at.row + i, at.column + v * kernel.lanes]
                store(self._output, value, index, kernel.lanes)

    def _unpad(self) -> None:
        """Copy what exists of the output, epilogue applied."""
        kernel, lanes = self.kernel, self.kernel.lanes
        with kernel.tasks() as task:
            rows, whole = kernel.ops.bind(kernel.rows), kernel.ops.bind(tirx.truncdiv(kernel.columns, lanes))
            with T.serial(*kernel.part(kernel.batch * rows, task, kernel.limits.num_cores)) as index:
                batch, row = self._split(index, rows)
                with T.serial(i64(0), whole) as v:
                    self._copy_out(batch, row, v * lanes, lanes)
                if self.cuts_vectors:
                    with T.serial(whole * lanes, kernel.columns) as column:
                        self._copy_out(batch, row, column, 1)

    def _copy_out(self, batch: Any, row: Any, column: Any, lanes: int) -> None:
        value = load(self._output, [batch, row, column], lanes)
        self.kernel.write(value, self.kernel.output_index(batch, row, column), lanes)

    def _split(self, index: Any, rows: Any) -> tuple[Any, Any]:
        bind = self.kernel.ops.bind
        return bind(tirx.truncdiv(index, rows)), bind(tirx.truncmod(index, rows))
