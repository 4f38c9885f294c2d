"""A compiled recursion: called with structures."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dietcode.errors import DietCodeError, ShapeError, TensorError
from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.library import REFUSALS, refused_by_code
from dietcode.runtime.models.executable import KernelStep
from dietcode.runtime.models.kernels import Kernels
from dietcode.runtime.models.model import input_array
from dietcode.runtime.native_loops import address_of
from dietcode.runtime.recursion.moves import MoveStep
from dietcode.runtime.recursion.plan import PHASES, RecursionDescription
from dietcode.runtime.recursion.program import RecursionProgram, RecursionWorkplace
from dietcode.runtime.recursion.structure import Structure
from dietcode.runtime.reopened import Reopened
from dietcode.runtime.tensors import aligned_empty

T = TypeVar("T")


class LoadedRecursion(Reopened):
    """A cell that is applied to each node of a structure, children before their parents.

    Calls are thread-safe: each has memory of its own while it runs, which is kept for the next one. Made by
    `dietcode.load`.

    Parameters
    ----------
    folder : Path
    manifest : dict
    description : RecursionDescription
    alone, beside_torch : Kernels
        For calls with NumPy's arrays, and with PyTorch's tensors.
    num_ids : mapping of int to int
        The rows of the table that inputs are numbers of, by the phase that reads it.

    Attributes
    ----------
    description : RecursionDescription
    """

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, Any],
        description: RecursionDescription,
        kernels: tuple[Kernels, Kernels],
        num_ids: Mapping[int, int],
    ) -> None:
        self.folder, self.manifest, self.description = folder, manifest, description
        self._programs = tuple(RecursionProgram(description, one) for one in kernels)
        self._num_ids = dict(num_ids)
        before, leaf, _, first = map(bool, description.phases)
        self._phases = before, leaf, description.max_level, description.skips_leaves, first
        self._shapes = [tuple(e.constant for e in type_.shape) for type_ in description.results]
        own = description.x
        shape = () if own is None else own.shape
        self._x_shape = tuple(extent.constant for extent in shape)
        dtypes = {own.dtype if own else "", "int64" if description.takes_ids else ""} - {""}
        # As PyTorch has it, a number of a table's row may be int64.
        self._x_types = {np.dtype(one): TensorType(one, (Extent.of("N"), *shape)) for one in dtypes}
        self._free: list[RecursionWorkplace] = []

    def __repr__(self) -> str:
        """Return one line with what it takes and gives."""
        own = self.description
        x = "" if own.x is None else f"x: {own.x} a node, "
        states = ", ".join(map(str, own.results))
        return (
            f"<dietcode.LoadedRecursion {own.name}({x}up to {own.max_children} children) -> {states}; "
            f"up to {own.max_nodes} nodes>"
        )

    def __call__(self, structure: Structure, x: Any = None, *, all_nodes: bool = False) -> Any:
        """Return the states of the roots.

        Parameters
        ----------
        structure : Structure
        x : array or tensor [nodes, ...], optional
            The nodes' inputs, in the order of their numbers; left out where the cell takes none.
        all_nodes : bool
            Whether the states of all nodes are returned, in the order of their numbers.

        Returns
        -------
        array or tensor [roots, ...] or tuple of them
            One for each state of a node; PyTorch's tensors where `x` is one, NumPy arrays elsewhere.

        Raises
        ------
        TensorError
            `structure` is none, or `x` is missing or has another dtype or device.
        ShapeError
            There are more nodes or children than the recursion was compiled for, or `x` has another shape.
        LibraryError
            A library takes other tensors than the bundle says.
        """
        x, some_torch = self._checked(structure, x)
        wanted = structure.positions if all_nodes else structure.root_positions
        outputs = [aligned_empty((len(wanted), *shape)) for shape in self._shapes]
        if structure.num_nodes:
            given = {f"out{number}": address_of(one) for number, one in enumerate(outputs)}
            self._run(
                structure,
                x,
                some_torch,
                {**given, "wanted": address_of(wanted)},
                lambda program, memory, ranges: program.run(memory, ranges, structure.num_nodes, len(wanted)),
                all_nodes,
            )
        if some_torch:
            from_numpy = sys.modules["torch"].from_numpy
            outputs = [from_numpy(one) for one in outputs]
        return outputs[0] if self.description.single_output else tuple(outputs)

    def random_inputs(self, structure: Structure) -> Any:
        """Return inputs of all nodes, as benchmarks have them; None where the cell takes none.

        Normal numbers, or rows of a table, by a fixed seed.
        """
        x, random = self.description.x, np.random.default_rng(0)
        if x is None:
            return None
        shape = (structure.num_nodes, *self._x_shape)
        if self.description.takes_ids:
            return random.integers(0, min(self._num_ids.values(), default=1), shape).astype(x.dtype)
        return random.standard_normal(shape).astype(x.dtype)

    def range_secs(self, structure: Structure, x: Any = None) -> list[tuple[str, int, float]]:
        """Return the phase, the rows and the seconds of each range of a call, for a profile."""
        return [(phase, rows, secs) for (phase, _, rows), secs in self._timed(structure, x, by_step=False)]

    def step_secs(
        self, structure: Structure, x: Any = None
    ) -> list[tuple[tuple[str, KernelStep | MoveStep, int], float]]:
        """Return the phase, the step, the rows and the seconds of each step of each range of a call.

        Each is run from Python by itself, which adds some microseconds.
        """
        timed = self._timed(structure, x, by_step=True)
        return [((phase, step, rows), secs) for (phase, step, rows), secs in timed if step is not None]

    def _timed(
        self, structure: Structure, x: Any, by_step: bool
    ) -> list[tuple[tuple[str, KernelStep | MoveStep | None, int], float]]:
        """Return what takes time in a call, and its seconds; without steps, of whole ranges."""
        x, some_torch = self._checked(structure, x)
        if not structure.num_nodes:
            return []

        def run(program: RecursionProgram, memory: array[int], ranges: NDArray[np.int64]) -> Any:
            found = []
            for phase, first, rows in ranges.tolist():
                steps = program.step_numbers[phase] if by_step else {phase: None}
                for number, step in steps.items():
                    one = np.array([[number, first, rows]], np.int64)
                    begin = time.perf_counter()
                    (program.stepwise if by_step else program.run)(memory, one, structure.num_nodes)
                    found.append(((PHASES[phase], step, rows), time.perf_counter() - begin))
            return found

        return list(self._run(structure, x, some_torch, {}, run, all_nodes=False))

    def _checked(self, structure: Structure, x: Any) -> tuple[Any, bool]:
        """Return the inputs as a contiguous array, and whether they are a tensor of PyTorch's."""
        own = self.description
        if not isinstance(structure, Structure):
            given = type(structure).__name__
            raise TensorError(
                f"structure: {given}; allowed: a dietcode.Structure, as of its children's numbers"
            )
        if structure.num_nodes > own.max_nodes:
            raise ShapeError(f"structure: {structure.num_nodes} nodes; allowed: up to {own.max_nodes}")
        structure.prepared(own.max_children, self._phases)
        if own.x is None:
            if x is not None:
                raise TensorError("x: given; allowed: nothing, this recursion's cell has no input")
            return None, False
        if x is None:
            raise TensorError(f"x: missing; allowed: {own.x} for each node")
        array, is_torch = x, False
        if type(x) is not np.ndarray or x.dtype not in self._x_types or not x.flags.c_contiguous:
            is_wide = own.takes_ids and str(getattr(x, "dtype", "")).endswith("int64")
            type_ = self._x_types[np.dtype("int64" if is_wide else own.x.dtype)]
            array, is_torch = input_array("x", x, type_)
        shape = (structure.num_nodes, *self._x_shape)
        if array.shape != shape:
            raise ShapeError(f"x: shape {list(array.shape)}; allowed: {list(shape)}, a row for each node")
        return (self._ids(structure, array) if own.takes_ids else array), is_torch

    def _ids(self, structure: Structure, x: Any) -> Any:
        """Return numbers of a table's rows in linear order; those that no phase reads may be anything."""
        ids = x[structure.order]
        leaves = structure.num_leaves if self._phases[1] else 0
        for phase, most in self._num_ids.items():
            is_whole = not phase and not self.description.skips_leaves
            # Of inner nodes those above the first level and those of it may be read by other kernels.
            read = ids if is_whole else ids[:leaves] if phase == 1 else ids[leaves:]
            low, high = (int(read.min()), int(read.max())) if read.size else (0, 0)
            if low < 0 or high >= most:
                wrong = low if low < 0 else high
                raise ShapeError(f"x: {wrong}; allowed: 0…{most - 1}, a row of the table that is read")
        return ids.astype(np.int32, copy=False)

    def _run(
        self,
        structure: Structure,
        x: Any,
        some_torch: bool,
        given: Mapping[str, int],
        act: Callable[[RecursionProgram, array[int], NDArray[np.int64]], T],
        all_nodes: bool,
    ) -> T:
        """Return what is done with the program, the addresses of its buffers, and its ranges."""
        own = self.description
        program = self._programs[some_torch]
        prepared = structure.prepared(own.max_children, self._phases)
        addresses = {**given, **prepared.addresses}
        if x is not None:
            addresses["ids" if own.takes_ids else "x"] = address_of(x)
        leaves = self._leaves(structure, x)  # which has to live until the end of the call
        addresses |= {f"leaf{slot}": address_of(one) for slot, one in enumerate(leaves)}
        try:
            workplace = self._free.pop()
        except IndexError:  # another thread has the others
            workplace = RecursionWorkplace()
        try:
            memory = workplace.addresses(program, prepared.sizes, some_torch, addresses)
            return act(program, memory, prepared.ranges if all_nodes else prepared.without_leaves)
        except DietCodeError:
            raise
        except REFUSALS as error:
            raise refused_by_code(self.folder, error) from error
        finally:
            self._free.append(workplace)

    def _leaves(self, structure: Structure, ids: Any) -> Any:
        """Return which leaves the children of the nodes of the first level are, ``[children, nodes]``."""
        own = self.description
        if not own.leaf_rows:
            return ()
        begin, end = structure.first_level()
        places = structure.child_places(own.max_children)
        found = np.empty((own.max_children, structure.num_nodes), np.int32)
        if own.leaf_rows == 1:
            np.equal(places[:, begin:end], structure.num_nodes, out=found[:, begin:end])
        else:
            rows = np.append(ids, np.int32(own.leaf_rows))  # of a child that is not there
            found[:, begin:end] = rows[places[:, begin:end]]
        return found
