"""Tensor maps: what a bulk copy of a tile is told of a tensor in global memory. Arithmetic alone.

A map has the extents and the strides of a tensor of up to five axes, and a box, which one instruction copies
to shared memory. What of a box lies outside of the tensor is zeros there, so that tails need no clamping. The
inner axis has stride 1, the other strides and the address are multiples of 16 bytes: of an alignment class
whose extents do not show that, the form without maps is taken. Sources: PTX ISA, "Tensors" and
"Tensor-map"; CUDA driver API, ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.access import ONE, ZERO, Size, has_windows, size_of, view_of
from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import block_problem
from dietcode.search_space.cuda.panels import Panels, panels_of
from dietcode.search_space.problem import Problem

LINE, STEP, BATCH = "line", "step", "batch"
"""Roles of the axes of a map: rows (columns), steps of the reduction, and the batch."""
MAX_BOX = 256
"""Elements of a box along one axis, at most."""
_VECTOR_BYTES = 16
_DATA_TYPES = {"float16": 6, "bfloat16": 9}  # CU_TENSOR_MAP_DATA_TYPE_…
_SWIZZLES = {32: 1, 64: 2, 128: 3}  # CU_TENSOR_MAP_SWIZZLE_…, by the bytes of a line in shared memory
_PATTERN_LINES = 8  # of a swizzle: boxes of a panel begin where it does


@dataclass(frozen=True)
class MapAxis:
    """One axis of a map.

    Attributes
    ----------
    role : str
        `LINE`, `STEP` or `BATCH`.
    extent, stride : Size
        In elements.
    box : int
        Elements of a box.
    """

    role: str
    extent: Size
    stride: Size
    box: int


@dataclass(frozen=True)
class OperandMap:
    """The map of one operand of a block function.

    Attributes
    ----------
    argument : str
        The tensor, or the region of the workspace.
    dtype : str
    itemsize : int
        Bytes of an element.
    axes : tuple of MapAxis
        The innermost first.
    panels : Panels
        Of the tile in shared memory.
    """

    argument: str
    dtype: str
    itemsize: int
    axes: tuple[MapAxis, ...]
    panels: Panels

    @property
    def num_boxes(self) -> int:
        """Boxes that a tile is copied by."""
        lines = max(axis.box for axis in self.axes[1:])  # of the batch a box has one element
        return self.panels.num_panels * (self.panels.lines // lines)

    def at(self, extents: Mapping[str, Any]) -> TensorMap:
        """Return what the driver is told at some extents: numbers, or whatever they are.

        Parameters
        ----------
        extents : mapping of str to int or expression
            Of every index of `block_problem`.
        """
        return TensorMap(
            self.argument,
            _DATA_TYPES[self.dtype],
            _SWIZZLES[self.panels.line_bytes],
            tuple(axis.extent.value(extents) for axis in self.axes),
            tuple(axis.stride.value(extents) * self.itemsize for axis in self.axes[1:]),
            tuple(axis.box for axis in self.axes),
        )


@dataclass(frozen=True)
class TensorMap:
    """The arguments of ``cuTensorMapEncodeTiled`` at the extents of a call, but the address.

    Attributes
    ----------
    argument : str
        Whose address it is.
    data_type, swizzle : int
        As the driver's enumerations have them.
    extents : tuple of int
        Elements along each axis, the innermost first.
    strides : tuple of int
        Bytes, of all axes but the first.
    box : tuple of int
        Elements along each axis.
    """

    argument: str
    data_type: int
    swizzle: int
    extents: tuple[Any, ...]
    strides: tuple[Any, ...]
    box: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        own = vars(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}


def maps_of(problem: Problem, micro_kernel: CudaMicroKernel) -> tuple[OperandMap, ...]:
    """Return the maps of the block function, rows first; none where it copies by threads.

    Parameters
    ----------
    problem : Problem
        That of an alignment class, `AlignmentClass.problem`.
    """
    if micro_kernel.unit != "tma":
        return ()
    padded = block_problem(problem, micro_kernel)
    found = [_map_of(padded, name, micro_kernel) for name in (padded.row_operand, padded.column_operand)]
    known = tuple(one for one in found if one is not None)
    return known if len(known) == len(found) else ()


def form_of(problem: Problem, micro_kernel: CudaMicroKernel) -> CudaMicroKernel:
    """Return the micro-kernel whose code the block function of an alignment class has.

    That is this one, but where it copies in bulk and the class does not show that maps can describe both
    operands: there it is the one with `unit` "wgmma", which has the same grid and gives the same bits.

    Parameters
    ----------
    problem : Problem
        That of an alignment class, `AlignmentClass.problem`.
    """
    if micro_kernel.unit != "tma" or maps_of(problem, micro_kernel):
        return micro_kernel
    return micro_kernel.of_unit("wgmma")


def _map_of(problem: Problem, name: str, micro_kernel: CudaMicroKernel) -> OperandMap | None:
    """Return the map of an operand of `block_problem`; None where none describes it."""
    is_row, storage = name == problem.row_operand, problem.storage(name)
    plan, view = plan_fetch(problem, name, micro_kernel), view_of(problem, name)
    if has_windows(problem, name) or plan.width * storage.itemsize != _VECTOR_BYTES:
        return None
    roles = {
        LINE: problem.rows if is_row else problem.columns,
        STEP: problem.reduction,
        BATCH: problem.batch,
    }
    panels = panels_of(micro_kernel, is_row, plan.along_reduction)
    inner, lines = STEP if plan.along_reduction else LINE, _box_lines(panels, micro_kernel.sharing(is_row))
    boxes = {LINE: lines, STEP: lines, BATCH: 1}
    boxes[inner] = panels.line_bytes // storage.itemsize
    axes = []
    for role, indices in roles.items():
        stride = view.stride(indices)
        if stride is None or (stride == ZERO and role != BATCH):
            return None
        if stride != ZERO:
            axes.append(MapAxis(role, size_of(problem, indices), stride, boxes[role]))
    positions = {role: _position(problem, name, indices) for role, indices in roles.items()}
    axes.sort(key=lambda axis: -positions[axis.role])  # each stride is then a multiple of the one before
    if axes[0].role != inner or axes[0].stride != ONE:
        return None
    return OperandMap(name, problem.operand_dtype, storage.itemsize, tuple(axes), panels)


def _position(problem: Problem, name: str, indices: tuple[str, ...]) -> int:
    """Return the place of a role's indices among the tensor's."""
    return max((problem.indices[name].index(k) for k in indices if k in problem.indices[name]), default=-1)


def _box_lines(panels: Panels, num_blocks: int) -> int:
    """Return the lines of a box: as many as one may have, so that all boxes of a panel are alike.

    Parameters
    ----------
    num_blocks : int
        Blocks of a cluster that copy a part of each panel: as many boxes of it each.
    """
    counts = range(_PATTERN_LINES, MAX_BOX + 1, _PATTERN_LINES)
    return max(count for count in counts if panels.lines // num_blocks % count == 0)
