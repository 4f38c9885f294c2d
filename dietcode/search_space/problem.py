"""A workload in the form that code generation takes: indices in roles, extents fixed or dynamic."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dietcode.search_space.stage import Stage
from dietcode.workload.contraction import Contraction
from dietcode.workload.conv2d import Slide
from dietcode.workload.dtypes import INPUT_DTYPES, OUTPUT_DTYPES, STORAGE
from dietcode.workload.field_checks import MAX_EXTENT
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip

IntArray = npt.NDArray[np.int64]
AnyProblem: TypeAlias = Any
"""A problem of any form: with what `Problem` has of sizes, tensors, `flops` and `to_json`, and its `form`."""


@dataclass(frozen=True)
class PackedLayout:
    """The layout ``[batch, columns / lanes, reduction, columns % lanes]`` that a constant is packed into.

    Attributes
    ----------
    batch, columns, reduction : tuple of str
        Indices of the constant in each role; several of a role are flattened, outer first.
    function : str
        Name of the library's function that packs it.
    """

    batch: tuple[str, ...]
    columns: tuple[str, ...]
    reduction: tuple[str, ...]
    function: str = "pack"


@dataclass(frozen=True)
class Window:
    """An axis of an operand that a window slides over, as in a convolution.

    The operand is read at ``axis = output·stride + kernel·dilation - padding``, and is zero outside.

    Attributes
    ----------
    axis, output, kernel : str
        Indices: of the operand's axis (it has no role), of the position in the output (a row or a column)
        and of the position in the window (a reduction).
    padding, padding_after : int
        Zeros before the axis, and after it; the latter None where they are as many.
    """

    axis: str
    output: str
    kernel: str
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    padding_after: int | None = None

    @property
    def end(self) -> int:
        """Zeros after the axis."""
        return self.padding if self.padding_after is None else self.padding_after

    def num_positions(self, axis: Any, kernel: Any) -> Any:
        """Return the extent of `output` from those of `axis` and `kernel`: scalars or arrays."""
        return (axis + self.padding + self.end - self.dilation * (kernel - 1) - 1) // self.stride + 1


@dataclass(frozen=True)
class Problem:
    """A contraction of two operands, ``Y[b, m, n] = Σ_k A[b, m, k] · B[b, n, k]``, each index a role.

    An operand need not have all indices of a role: it is the same for every value of an index that it lacks.

    Attributes
    ----------
    row_operand, column_operand, output : str
        Tensor names; the column operand is packed into vector-wide panels.
    indices : dict of str to str
        Indices of each tensor, the output among them.
    batch, rows, columns, reduction : tuple of str
        Indices of each role; several indices of a role are flattened. Rows are of the row operand and
        the output, columns of the column operand and the output, reductions not of the output.
    extents : dict of str to int or None
        Extent of each index; None where it is known only at run time.
    stages : tuple of Stage
        The epilogue, applied at write-back.
    column_operand_constant : bool
        Whether the column operand is packed ahead of time.
    windows : tuple of Window
        Axes that are read through a sliding window.
    splits : dict of str to str
        Axes that callers see as one, by their index there: its indices here, outer first. So are the channels
        of a grouped convolution.
    output_dtype : str
        Dtype that the output is rounded to at write-back, of `dietcode.workload.dtypes.OUTPUT_DTYPES`.
    operand_dtype : str
        Dtype of both operands and of the tensors of the epilogue, of
        `dietcode.workload.dtypes.INPUT_DTYPES`; accumulators are float32.
    is_column_first : bool
        Whether the spec lists the column operand before the row operand.
    """

    row_operand: str
    column_operand: str
    output: str
    indices: dict[str, str]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduction: tuple[str, ...]
    extents: dict[str, int | None]
    stages: tuple[Stage, ...]
    column_operand_constant: bool
    windows: tuple[Window, ...] = ()
    splits: dict[str, str] = field(default_factory=dict)
    output_dtype: str = "float32"
    operand_dtype: str = "float32"
    is_column_first: bool = False

    form: ClassVar[str] = "contraction"
    into: ClassVar[Mapping[str, tuple[str, str]]] = {}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Tensors that a kernel writes, in argument order."""
        return (self.output,)

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Indices whose extents are arguments of a kernel, in alphabetical order."""
        return tuple(sorted(index for index, extent in self.extents.items() if extent is None))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that a kernel reads, in argument order: row operand, column operand, epilogue tensors."""
        extra = tuple(dict.fromkeys(s.tensor for s in self.stages if s.tensor is not None))
        return (self.row_operand, self.column_operand, *extra)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The inputs in the order of the spec, in which callers of a library pass them."""
        row, column, *extra = self.inputs
        return (column, row, *extra) if self.is_column_first else self.inputs

    @property
    def packed(self) -> dict[str, PackedLayout]:
        """Layouts of the inputs that are packed ahead of time."""
        if not self.column_operand_constant:
            return {}
        batch = tuple(k for k in self.batch if k in self.indices[self.column_operand])
        return {self.column_operand: PackedLayout(batch, self.columns, self.reduction)}

    def dtype(self, tensor: str) -> str:
        """Return the dtype in which callers hold `tensor`."""
        return self.output_dtype if tensor == self.output else self.operand_dtype

    def draw(self, tensor: str, extents: Mapping[str, Any], rng: np.random.Generator) -> Any:
        """Return random values for an input, of the size of those of models.

        Where the epilogue bounds the results, those of the column operand are over √k, so that sums over k
        are of the size of 1: with larger ones it magnifies their rounding errors.
        """
        values = rng.standard_normal(self.shape(tensor, extents), dtype=np.float32)
        if tensor != self.column_operand or not any(stage.is_bounded for stage in self.stages):
            return values
        return values * np.float32(float(self.product(self.reduction, dict(extents))) ** -0.5)

    def storage(self, tensor: str) -> np.dtype[Any]:
        """Return the dtype in which generated code holds `tensor`, see `dietcode.workload.dtypes.STORAGE`."""
        return STORAGE[self.dtype(tensor)]

    def role_indices(self, tensor: str) -> str:
        """Return the indices with a role that address `tensor`, those of windows in place of an axis."""
        result = ""
        for index in self.indices[tensor]:
            window = self.window_over(index)
            result += index if window is None else window.output + window.kernel
        return result

    def window_over(self, axis: str) -> Window | None:
        """Return the window that slides over the axis of this index, if any."""
        return next((window for window in self.windows if window.axis == axis), None)

    def axes(self, tensor: str) -> list[str]:
        """Return the axes of `tensor` as callers see them: the indices of each, outer first."""
        indices, result = self.indices[tensor], []
        while indices:
            parts = next((p for p in self.splits.values() if indices.startswith(p)), indices[:1])
            result.append(parts)
            indices = indices[len(parts) :]
        return result

    def shape(self, tensor: str, extents: Mapping[str, Any]) -> list[Any]:
        """Return the shape of `tensor` as callers see it."""
        return [self.product(tuple(indices), dict(extents)) for indices in self.axes(tensor)]

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which `from_json` reads."""
        data = {"subscripts" if key == "indices" else key: value for key, value in asdict(self).items()}
        data["windows"] = tuple(
            {key: value for key, value in window.items() if value is not None} for window in data["windows"]
        )
        if not self.is_column_first:
            del data["is_column_first"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        """Read what `to_json` returns.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no problem.
        """
        roles = {
            role: tuple(str(k) for k in data[role]) for role in ("batch", "rows", "columns", "reduction")
        }
        problem = cls(
            row_operand=str(data["row_operand"]),
            column_operand=str(data["column_operand"]),
            output=str(data["output"]),
            indices={str(name): str(indices) for name, indices in data["subscripts"].items()},
            extents={str(k): None if v is None else operator.index(v) for k, v in data["extents"].items()},
            stages=tuple(Stage.from_json(stage) for stage in data["stages"]),
            column_operand_constant=bool(data["column_operand_constant"]),
            windows=tuple(Window(**window) for window in data.get("windows", ())),
            splits={str(k): str(v) for k, v in data.get("splits", {}).items()},
            output_dtype=str(data.get("output_dtype", "float32")),
            operand_dtype=str(data.get("operand_dtype", "float32")),
            is_column_first=bool(data.get("is_column_first", False)),
            **roles,
        )
        problem.check()
        return problem

    def check(self) -> None:
        """Refuse what no spec lowers to.

        Raises
        ------
        ValueError
            Indices, roles, extents and stages do not fit together.
        """
        names = (*self.inputs, self.output)
        missing = [name for name in names if not self.indices.get(name)]
        if missing or self.row_operand == self.column_operand:
            raise ValueError(f"tensors {clip(names)} with subscripts {clip(self.indices)}")
        for name, indices in self.indices.items():
            if not _are_indices(indices):
                raise ValueError(f"subscripts {clip(indices)} of {clip(name)}; allowed: letters, each once")
        self._check_windows()
        self._check_roles()
        used = {index for own in self.indices.values() for index in own}
        used |= {index for window in self.windows for index in (window.output, window.kernel)}
        if used != set(self.extents):
            raise ValueError(f"extents of {clip(sorted(self.extents))}; allowed: of {clip(sorted(used))}")
        for index, extent in self.extents.items():
            if extent is not None and not 1 <= extent <= MAX_EXTENT:
                raise ValueError(f"extent {clip(extent)} of {index}; allowed: 1 to {MAX_EXTENT}")
        for index, parts in self.splits.items():
            if index in used or not set(parts) <= used:
                raise ValueError(f"axis {clip(index)} split in {clip(parts)}")
        if self.output_dtype not in OUTPUT_DTYPES:
            raise ValueError(f"output of {clip(self.output_dtype)}; allowed: {', '.join(OUTPUT_DTYPES)}")
        if self.operand_dtype not in INPUT_DTYPES:
            raise ValueError(f"operands of {clip(self.operand_dtype)}; allowed: {', '.join(INPUT_DTYPES)}")
        for stage in self.stages:
            stage.check(self.indices, self.indices[self.output])

    def _check_windows(self) -> None:
        for window in self.windows:
            numbers = (window.stride, window.dilation, window.padding + 1, window.end + 1)
            if not all(isinstance(n, int) and 1 <= n <= MAX_EXTENT for n in numbers):
                raise ValueError(f"window {clip(window)}; allowed: whole numbers from 1, padding from 0")
            holders = [name for name, indices in self.indices.items() if window.axis in indices]
            operands = {self.row_operand, self.column_operand}
            output = self.rows + self.columns + self.batch
            fits = window.output in output and window.kernel in self.reduction
            if len(holders) != 1 or not operands.issuperset(holders) or not fits:
                raise ValueError(f"window {clip(window)} over {clip(self.indices)}")

    def _check_roles(self) -> None:
        roles = (*self.batch, *self.rows, *self.columns, *self.reduction)
        row, column = set(self.role_indices(self.row_operand)), set(self.role_indices(self.column_operand))
        output = set(self.indices[self.output])
        fits = (
            set(roles) == row | column
            and output == set(roles) - set(self.reduction)
            and row.issuperset(self.rows)
            and column.issuperset(self.columns)
            and not row & set(self.columns)
            and not column & set(self.rows)
        )
        if not fits or len(set(roles)) != len(roles):
            given = (self.batch, self.rows, self.columns, self.reduction)
            raise ValueError(f"batch, rows, columns, reduction {clip(given)} of {clip(self.indices)}")

    def product(self, indices: tuple[str, ...], extents: dict[str, Any]) -> Any:
        """Return the product of the extents of `indices`: scalars or arrays; 1 without indices."""
        result: Any = 1
        for index in indices:
            result = result * extents[index]
        return result

    def flops(self, extents: dict[str, Any]) -> Any:
        """Return the FLOPs, 2·batch·rows·columns·reduction, as floats: scalars or arrays."""
        batch, rows, columns, reduction = self.sizes(extents)
        return 2.0 * batch * rows * columns * reduction

    def sizes(self, extents: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Return the flattened ``(batch, rows, columns, reduction)`` extents."""
        return (
            self.product(self.batch, extents),
            self.product(self.rows, extents),
            self.product(self.columns, extents),
            self.product(self.reduction, extents),
        )


def _are_indices(indices: str) -> bool:
    return indices.isascii() and indices.isalpha() and len(set(indices)) == len(indices)


def problem_from_spec(spec: Spec) -> Problem:
    """Assign roles to the indices of a spec's operator."""
    contraction, conv = Contraction.from_spec(spec), spec.convolution
    splits = {} if conv is None else conv.splits
    axes = spec.operand_indices | {spec.output.name: spec.output_indices} | spec.epilogue_tensors
    indices = {name: "".join(splits.get(k, k) for k in own) for name, own in axes.items()}
    slides = () if conv is None else conv.slides
    column_operand = contraction.column_operand
    used = dict.fromkeys("".join(indices.values()) + "".join(s.output + s.kernel for s in slides))
    dims = {index: spec.dims_parsed[index] for index in used}
    # A constant is packed before a call tells any extent, so it must have every index of its packed layout;
    # and a call must find its extents in the other tensors.
    packed = set(indices[column_operand])
    others = set(indices[contraction.row_operand] + indices[contraction.output])
    packable = packed >= {*contraction.columns, *contraction.reduction}
    packable = packable and all(dims[index].is_constant for index in packed - others)
    return Problem(
        row_operand=contraction.row_operand,
        column_operand=column_operand,
        output=contraction.output,
        indices=indices,
        batch=contraction.batch,
        rows=contraction.rows,
        columns=contraction.columns,
        reduction=contraction.reduction,
        extents={k: d.constant_value() if d.is_constant else None for k, d in dims.items()},
        stages=tuple(Stage.of(item) for item in spec.op.epilogue),
        column_operand_constant=spec.tensors[column_operand].constant and packable,
        windows=tuple(_window(slide) for slide in slides),
        splits=splits,
        output_dtype=spec.output.dtype,
        operand_dtype=spec.operand_dtype,
        is_column_first=next(iter(spec.tensors)) == column_operand,
    )


def _window(slide: Slide) -> Window:
    after = None if slide.padding_after == slide.padding else slide.padding_after
    return Window(*slide[:-1], after)


def extents_of(spec: Spec, binding: Mapping[str, int]) -> dict[str, int]:
    """Return the extent of every index of a spec's problem at one instance."""
    columns = {name: np.array([value]) for name, value in binding.items()}
    return {index: int(values[0]) for index, values in instance_extents(spec, columns).items()}


def instance_extents(spec: Spec, columns: dict[str, IntArray]) -> dict[str, IntArray]:
    """Return the extent of every index of a spec's problem, for many instances.

    Parameters
    ----------
    columns : dict of str to int64 array [num_instances]
        Values of the shape variables.

    Returns
    -------
    dict of str to int64 array [num_instances]
    """
    num_instances = len(next(iter(columns.values()))) if columns else 1
    split = (
        set() if spec.convolution is None else set(spec.convolution.splits)
    )  # these are not indices of the problem
    return {
        index: np.broadcast_to(np.asarray(dim.evaluate(columns), dtype=np.int64), (num_instances,))
        for index, dim in spec.dims_parsed.items()
        if index not in split
    }
