"""The roles of an operator's two operands and of their indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dietcode.errors import SpecError

if TYPE_CHECKING:  # needs no pydantic
    from dietcode.workload.spec_fields import SpecFields

_FIELD = "op.einsum"


@dataclass(frozen=True)
class Contraction:
    """``output[batch, rows, columns] = Σ_reduction row_operand[batch, rows, reduction] · column_operand[…]``.

    An operand owns the indices that it shares with the output alone. The groups name indices, not an order of
    axes: axes may be interleaved in the tensors, and an operand is the same for every value of an index that
    it lacks. Any group may be empty.

    Parameters
    ----------
    row_operand, column_operand, output : str
        Names of tensors. The column operand owns the last output index, the one that is contiguous in memory;
        where both have that one, the last index that is owned.
    batch : tuple of str
        Indices of both operands and the output, and the column operand's own that are not columns; in output
        order.
    rows : tuple of str
        The row operand's own indices, in output order.
    columns : tuple of str
        The last ones of the output that are the column operand's own, without another between them.
    reduction : tuple of str
        Indices that are not the output's, in the row operand's order, then those of the column operand only.
    """

    row_operand: str
    column_operand: str
    output: str
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduction: tuple[str, ...]

    @classmethod
    def from_spec(cls, spec: SpecFields) -> Contraction:
        """Classify the operands and indices of `spec`.

        Raises
        ------
        SpecError
            The einsum is no contraction of this form.
        """
        conv = spec.convolution
        if conv is None:
            return cls.from_indices(spec.operand_indices, spec.output.name, spec.output_indices)
        data, kernel = spec.tensors
        # The operand with the last output index is the column operand here, too.
        row, column = (data, kernel) if conv.is_channels_last else (kernel, data)
        return cls(row_operand=row, column_operand=column, output=spec.output.name, **conv.roles())

    @classmethod
    def from_indices(cls, operands: Mapping[str, str], output: str, indices: str) -> Contraction:
        """Classify two operands by their indices.

        Parameters
        ----------
        operands : mapping of str to str
            The indices of each of the two operands, by name.
        output : str
            Name of the output.
        indices : str
            Indices of the output.

        Raises
        ------
        SpecError
            The output has no index, or one that no operand has.
        """
        (first, first_dims), (second, second_dims) = operands.items()
        _check_indices(first_dims, second_dims, indices)
        owned = [i for i in indices if (i in first_dims) != (i in second_dims)]
        swap = bool(owned) and owned[-1] in first_dims
        row_name, row_dims = (second, second_dims) if swap else (first, first_dims)
        column_name, column_dims = (first, first_dims) if swap else (second, second_dims)
        columns = _last_run(indices, set(column_dims) - set(row_dims))
        return cls(
            row_operand=row_name,
            column_operand=column_name,
            output=output,
            batch=tuple(i for i in indices if i in column_dims and i not in columns),
            rows=tuple(i for i in indices if i not in column_dims),
            columns=tuple(columns),
            reduction=tuple(i for i in dict.fromkeys(row_dims + column_dims) if i not in indices),
        )

    @property
    def indices(self) -> tuple[str, ...]:
        """Every index once: batch, rows, columns, reduction."""
        return self.batch + self.rows + self.columns + self.reduction

    def flops(self, spec: SpecFields, bindings: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return floating-point operations, two for each multiply-add.

        Parameters
        ----------
        spec : SpecFields
            The spec that this was made from.
        bindings : mapping of str to int64 array [num_instances]
            A value of every shape variable for each instance.

        Returns
        -------
        int64 array [num_instances]
            2 · Π extents, at most 2**53; see `spec_checks`.
        """
        columns = {name: np.asarray(values, dtype=np.int64) for name, values in bindings.items()}
        total = np.full(
            np.broadcast_shapes(*(values.shape for values in columns.values())), 2, dtype=np.int64
        )
        for index in self.indices:
            total = total * spec.dims_parsed[index].evaluate(columns)
        return total


def _last_run(indices: str, owned: set[str]) -> str:
    """Return the last indices of `owned` that follow each other in the output."""
    end = max((position + 1 for position, index in enumerate(indices) if index in owned), default=0)
    start = end
    while start and indices[start - 1] in owned:
        start -= 1
    return indices[start:end]


def _check_indices(first: str, second: str, output: str) -> None:
    """Refuse an output that no element-wise product and sum of the operands gives."""
    if not output:
        raise SpecError(_FIELD, "the output has no index; allowed: at least one")
    for index in output:
        if index not in first and index not in second:
            raise SpecError(
                _FIELD, f"output index {index!r} is in no operand; allowed: indices of the operands"
            )
