"""A workload as code generation sees it: index letters in roles, extents fixed or dynamic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dietcode.errors import SpecError
from dietcode.workload.contraction import Contraction
from dietcode.workload.epilogue import EpilogueStep
from dietcode.workload.spec import Spec

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """One epilogue stage; `kind` is bias, relu, residual or scale."""

    kind: str
    tensor: str | None = None
    value: float | None = None


@dataclass(frozen=True)
class Problem:
    """A contraction of two operands, ``Y[b, m, n] = Σ_k A[b, m, k] · B[b, n, k]``, each index a role.

    Attributes
    ----------
    row_operand, column_operand, output : str
        Tensor names; the column operand is packed into vector-wide panels.
    subscripts : dict of str to str
        Index letters of each tensor, the output among them.
    batch, rows, columns, reduction : tuple of str
        Index letters of each role; several letters of a role are flattened.
    extents : dict of str to int or None
        Extent of each letter; None where it is known only at run time.
    stages : tuple of Stage
        The epilogue, applied at write-back.
    column_operand_constant : bool
        Whether the column operand is packed ahead of time.
    """

    row_operand: str
    column_operand: str
    output: str
    subscripts: dict[str, str]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduction: tuple[str, ...]
    extents: dict[str, int | None]
    stages: tuple[Stage, ...]
    column_operand_constant: bool

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Letters whose extents are arguments of a kernel, in alphabetical order."""
        return tuple(sorted(letter for letter, extent in self.extents.items() if extent is None))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that a kernel reads, in argument order: row operand, column operand, epilogue tensors."""
        extra = tuple(dict.fromkeys(s.tensor for s in self.stages if s.tensor is not None))
        return (self.row_operand, self.column_operand, *extra)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it."""
        data = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        """The inverse of `to_json`.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no problem.
        """
        roles = {
            role: tuple(str(k) for k in data[role]) for role in ("batch", "rows", "columns", "reduction")
        }
        return cls(
            row_operand=str(data["row_operand"]),
            column_operand=str(data["column_operand"]),
            output=str(data["output"]),
            subscripts={str(name): str(letters) for name, letters in data["subscripts"].items()},
            extents={str(k): None if v is None else int(v) for k, v in data["extents"].items()},
            stages=tuple(Stage(**stage) for stage in data["stages"]),
            column_operand_constant=bool(data["column_operand_constant"]),
            **roles,
        )

    def product(self, letters: tuple[str, ...], extents: dict[str, Any]) -> Any:
        """Product of the extents of `letters`; 1 for none. Scalars or arrays alike."""
        result: Any = 1
        for letter in letters:
            result = result * extents[letter]
        return result

    def sizes(self, extents: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Flattened ``(batch, rows, columns, reduction)`` extents."""
        return (
            self.product(self.batch, extents),
            self.product(self.rows, extents),
            self.product(self.columns, extents),
            self.product(self.reduction, extents),
        )


def problem_from_spec(spec: Spec) -> Problem:
    """Assign roles to the letters of a spec's einsum.

    Raises
    ------
    SpecError
        The einsum or an epilogue stage cannot be lowered by this version.
    """
    contraction = Contraction.from_spec(spec)
    dims = spec.dims_parsed
    output_letters = spec.op.output_subscripts
    trailing = tuple(output_letters[len(output_letters) - len(contraction.columns) :])
    if trailing != contraction.columns:
        raise SpecError("op.einsum", "the column operand's indices must be the last ones of the output")
    subscripts = {name: tensor.dims for name, tensor in spec.tensors.items()}
    subscripts[spec.output.name] = output_letters
    stages = tuple(_stage(item, index) for index, item in enumerate(spec.op.epilogue))
    for stage in stages:
        if stage.kind == "bias":
            if len(contraction.columns) != 1:
                raise SpecError("op.epilogue", "bias needs an output whose columns are one index")
            subscripts["bias"] = output_letters[-1]
        elif stage.tensor is not None:
            subscripts[stage.tensor] = output_letters
    return Problem(
        row_operand=contraction.row_operand,
        column_operand=contraction.column_operand,
        output=spec.output.name,
        subscripts=subscripts,
        batch=contraction.batch,
        rows=contraction.rows,
        columns=contraction.columns,
        reduction=contraction.reduction,
        extents={k: d.constant_value() if d.is_constant else None for k, d in dims.items()},
        stages=stages,
        column_operand_constant=spec.tensors[contraction.column_operand].constant,
    )


def _stage(step: EpilogueStep, index: int) -> Stage:
    if step.kind in {"bias", "relu", "residual"}:
        return Stage(step.kind, tensor=step.tensor)
    if step.kind == "scale":
        return Stage("scale", value=float(step.value or 0.0))
    raise SpecError(
        f"op.epilogue[{index}]",
        f"{step.kind} cannot be fused by this version; allowed: bias, relu, residual, scale",
    )


def instance_extents(spec: Spec, columns: dict[str, IntArray]) -> dict[str, IntArray]:
    """Extent of every letter for many instances.

    Parameters
    ----------
    columns : dict of str to int64 array [num_instances]
        Values of the shape variables.

    Returns
    -------
    dict of str to int64 array [num_instances]
    """
    num_instances = len(next(iter(columns.values()))) if columns else 1
    return {
        letter: np.broadcast_to(np.asarray(dim.evaluate(columns), dtype=np.int64), (num_instances,))
        for letter, dim in spec.dims_parsed.items()
    }
