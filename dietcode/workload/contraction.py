"""The roles of a two-operand einsum's operands and indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dietcode.errors import SpecError

if TYPE_CHECKING:
    from dietcode.workload.spec import Spec

_FIELD = "op.einsum"


@dataclass(frozen=True)
class Contraction:
    """``output[batch, rows, columns] = Σ_reduction row_operand[batch, rows, reduction] · column_operand[…]``.

    The column operand owns the last output index, the one that is contiguous in memory. The groups name
    indices, not an order of axes: axes may be interleaved in the tensors.

    Parameters
    ----------
    row_operand, column_operand, output : str
        Names of tensors.
    batch : tuple of str
        Indices of both operands and the output, in output order.
    rows : tuple of str
        Indices of the row operand and the output, in output order; may be empty.
    columns : tuple of str
        Indices of the column operand and the output, in output order; never empty.
    reduction : tuple of str
        Indices of both operands but not the output, in the row operand's order; never empty.
    """

    row_operand: str
    column_operand: str
    output: str
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduction: tuple[str, ...]

    @classmethod
    def from_spec(cls, spec: Spec) -> Contraction:
        """Classify the operands and indices of `spec`.

        Raises
        ------
        SpecError
            The einsum is no contraction of this form.
        """
        return cls.from_subscripts(spec.subscripts, spec.output.name, spec.op.output_subscripts)

    @classmethod
    def from_subscripts(cls, operands: Mapping[str, str], output: str, subscripts: str) -> Contraction:
        """Classify two operands by their subscripts.

        Parameters
        ----------
        operands : mapping of str to str
            The subscripts of each of the two operands, by name.
        output : str
            Name of the output.
        subscripts : str
            Subscripts of the output.

        Raises
        ------
        SpecError
            The einsum is no contraction of this form.
        """
        (first, first_dims), (second, second_dims) = operands.items()
        _check_indices(first_dims, second_dims, subscripts)
        owner_is_second = subscripts[-1] in second_dims
        row_name, row_dims = (first, first_dims) if owner_is_second else (second, second_dims)
        column_name, column_dims = (second, second_dims) if owner_is_second else (first, first_dims)
        return cls(
            row_operand=row_name,
            column_operand=column_name,
            output=output,
            batch=tuple(i for i in subscripts if i in row_dims and i in column_dims),
            rows=tuple(i for i in subscripts if i not in column_dims),
            columns=tuple(i for i in subscripts if i not in row_dims),
            reduction=tuple(i for i in row_dims if i not in subscripts),
        )

    @property
    def indices(self) -> tuple[str, ...]:
        """Every index once: batch, rows, columns, reduction."""
        return self.batch + self.rows + self.columns + self.reduction

    def flops(self, spec: Spec, bindings: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return floating-point operations, two for each multiply-add.

        Parameters
        ----------
        spec : Spec
            The spec that this was made from.
        bindings : mapping of str to int64 array [num_instances]
            A value of every shape variable for each instance.

        Returns
        -------
        int64 array [num_instances]
            2 · Π extents; the limits on tensors keep it below 2**53.
        """
        columns = {name: np.asarray(values, dtype=np.int64) for name, values in bindings.items()}
        total = np.full(
            np.broadcast_shapes(*(values.shape for values in columns.values())), 2, dtype=np.int64
        )
        for index in self.indices:
            total = total * spec.dims_parsed[index].evaluate(columns)
        return total


def _check_indices(first: str, second: str, output: str) -> None:
    """Refuse what is no contraction with a contiguous column index."""
    if not output:
        raise SpecError(_FIELD, "the output has no index; allowed: at least one")
    for index in output:
        if index not in first and index not in second:
            raise SpecError(
                _FIELD, f"output index {index!r} is in no operand; allowed: indices of the operands"
            )
    for index in first + second:
        if index not in output and not (index in first and index in second):
            raise SpecError(
                _FIELD,
                f"index {index!r} is in one operand only and not in the output; sum over it beforehand",
            )
    if output[-1] in first and output[-1] in second:
        raise SpecError(
            _FIELD,
            f"the last output index {output[-1]!r} is in both operands, a batch index; "
            "allowed: a last output index of one operand",
        )
    if not any(index not in output for index in first):
        raise SpecError(_FIELD, "no index is summed over; allowed: at least one index of both operands only")
