"""Loops in C: structures put into the order of their levels, and programs of calls over ranges of rows."""

from __future__ import annotations

import ctypes
import functools
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dietcode.errors import LibraryError
from dietcode.runtime.compile_launcher import LOOPS
from dietcode.runtime.native import load_code

Positions: TypeAlias = NDArray[np.int32]
Linear: TypeAlias = tuple[int, int, int]  # a number, and what each node and each row of the range add to it
WHOLE, ROWS, BEFORE = range(3)  # as the loops number them
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's
PROBLEMS = ("", "out of range", "cycle", "too deep", "no memory")


@dataclass(frozen=True)
class LoopTensor:
    """A tensor of a call in a program.

    Attributes
    ----------
    buffer : int
        The number of the address at which its first row lies.
    dtype : numpy.dtype
    shape : tuple of Linear
        Extents.
    mode : int
        `WHOLE` for the buffer as it is, `ROWS` for the range's, `BEFORE` for those of the range before.
    row_bytes : int
        Bytes from a row to the next.
    first : int
        The buffer that stands in for the range before the first one.
    """

    buffer: int
    dtype: np.dtype[Any]
    shape: tuple[Linear, ...]
    mode: int = WHOLE
    row_bytes: int = 0
    first: int = 0

    @property
    def integers(self) -> list[int]:
        """Its part of a description."""
        code = _CODES[self.dtype.kind]
        head = [self.mode, self.buffer, self.row_bytes, self.first, code, 8 * self.dtype.itemsize]
        return [*head, len(self.shape), *(number for extent in self.shape for number in extent)]


@dataclass(frozen=True)
class LoopCall:
    """A call of a library's function.

    Attributes
    ----------
    function : callable
        Of tvm-ffi: tensors, outputs, values of the shape variables.
    tensors : sequence of LoopTensor
    values : sequence of Linear
    """

    function: Any
    tensors: Sequence[LoopTensor]
    values: Sequence[Linear]

    @property
    def integers(self) -> list[int]:
        """Its part of a description."""
        head = [self.function.__chandle__(), len(self.tensors), len(self.values)]
        return [
            *head,
            *(n for one in self.tensors for n in one.integers),
            *(n for v in self.values for n in v),
        ]


@dataclass(frozen=True)
class LoopMove:
    """Elements of rows that are written from elsewhere, by the loop itself.

    Attributes
    ----------
    target : LoopTensor
    source : LoopTensor or None
        None where all elements become `filler`.
    positions : LoopTensor or None
        int32, which row of the source each row is of.
    axes : sequence of (int, int, int)
        Of each its extent, and how far apart its elements are in the source and in the target.
    begins : (int, int)
        The first element in a row of the source, and in one of the target.
    row_bytes : (int, int)
        From a row to the next in the source, and in the target.
    filler : float
    """

    target: LoopTensor
    source: LoopTensor | None
    positions: LoopTensor | None
    axes: Sequence[tuple[int, int, int]]
    begins: tuple[int, int]
    row_bytes: tuple[int, int]
    filler: float = 0.0

    @property
    def integers(self) -> list[int]:
        """Its part of a description."""
        tensors = [one for one in (self.target, self.source, self.positions) if one is not None]
        bits = int(np.float32(self.filler).view(np.uint32))
        numbers = [len(self.axes), *(n for axis in self.axes for n in axis)]
        numbers += [*self.begins, *self.row_bytes, bits]
        values = [n for number in numbers for n in (number, 0, 0)]
        return [0, len(tensors), len(numbers), *(n for one in tensors for n in one.integers), *values]


def program_integers(
    num_buffers: int,
    phases: Sequence[Sequence[LoopCall | LoopMove]],
    fills: Sequence[tuple[int, int]] = (),
    copies: Sequence[tuple[int, int, int, int]] = (),
) -> array[int]:
    """Return the description of a program as the loops read it; parameters as for `NativeProgram`."""
    calls = [[len(phase), *(n for call in phase for n in call.integers)] for phase in phases]
    description = array("q", [num_buffers, len(phases), *(n for phase in calls for n in phase)])
    for group in (fills, copies):
        description.extend([len(group), *(number for one in group for number in one)])
    return description


class NativeProgram:
    """Phases of calls, run over ranges of rows without Python in between.

    Parameters
    ----------
    num_buffers : int
    phases : sequence of sequence of LoopCall or LoopMove
    fills : sequence of (int, int)
        Buffers whose row behind all nodes is set to zeros, with the bytes of a row.
    copies : sequence of (int, int, int, int)
        What is copied at the end: source, target, positions of rows in the source (int32), bytes of a row.

    Raises
    ------
    ValueError
        A call has more than `MAX_CALL` tensors and values, or a tensor more than 8 axes.
    """

    def __init__(
        self,
        num_buffers: int,
        phases: Sequence[Sequence[LoopCall | LoopMove]],
        fills: Sequence[tuple[int, int]] = (),
        copies: Sequence[tuple[int, int, int, int]] = (),
    ) -> None:
        description = program_integers(num_buffers, phases, fills, copies)
        address, length = description.buffer_info()
        self._run: Callable[..., None] = loop_function("program")(address, length)

    def __call__(
        self, addresses: array[int], ranges: NDArray[np.int64], num_nodes: int = 0, num_copied: int = 0
    ) -> None:
        """Run it; nothing of what is given is checked.

        Parameters
        ----------
        addresses : array of int64 [num_buffers]
        ranges : int64 array [num_ranges, 3]
            Of each its phase, where it begins, and its rows.
        num_nodes : int
        num_copied : int
            Rows that each copy copies.

        Raises
        ------
        KeyboardInterrupt
            Between two ranges, as anything else that a signal's handler raises.
        Exception
            What a library's function says.
        """
        self._run(addresses.buffer_info()[0], address_of(ranges), len(ranges), num_nodes, num_copied)


def address_of(values: NDArray[Any]) -> int:
    """Return where an array begins."""
    buffer: Any = values  # which NumPy's types do not say
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # a quarter of the other way's time
    except (TypeError, ValueError, BufferError):  # read-only, empty, or not contiguous
        address: int = values.__array_interface__["data"][0]
        return address


def linearize(children: Positions) -> tuple[Positions, Positions, Positions, Positions, tuple[str, int]]:
    """Put the nodes of a structure into the order of their levels.

    Parameters
    ----------
    children : int32 array [nodes, columns]
        Contiguous.

    Returns
    -------
    order, positions : int32 array [nodes]
        Own numbers in linear order, and the reverse.
    begins : int32 array [levels + 1]
    roots : int32 array [roots]
    problem : (str, int)
        One of `PROBLEMS`, and the node that has it; then nothing else holds.
    """
    num_nodes, num_columns = children.shape
    order, positions, roots = (np.empty(num_nodes, np.int32) for _ in range(3))
    begins, facts = np.empty(num_nodes + 1, np.int32), array("q", [0] * 4)
    made = (address_of(one) for one in (order, positions, begins, roots))
    loop_function("linearize")(address_of(children), num_nodes, num_columns, *made, facts.buffer_info()[0])
    problem, node, num_levels, num_roots = facts
    return order, positions, begins[: num_levels + 1], roots[:num_roots], (PROBLEMS[problem], node)


def place_children(children: Positions, order: Positions, positions: Positions, num_slots: int) -> Positions:
    """Return where each node's children lie, in linear order; `nodes` for those that are not there.

    Parameters
    ----------
    children, order, positions : int32 array
        As `linearize` takes and returns them.
    num_slots : int
        Children that a cell takes; at least as many as there are columns.

    Returns
    -------
    int32 array [num_slots, nodes]
    """
    num_nodes, num_columns = children.shape
    out = np.empty((num_slots, num_nodes), np.int32)
    given = address_of(children), num_nodes, num_columns, address_of(order), address_of(positions)
    loop_function("place_children")(*given, num_slots, address_of(out))
    return out


def ranges_of(pieces: Iterable[tuple[int, int, int]]) -> NDArray[np.int64]:
    """Return ranges as a program takes them: of each its phase, where it begins, and its rows."""
    return np.array(list(pieces), np.int64).reshape(-1, 3)


@functools.lru_cache(maxsize=8)
def loop_function(name: str) -> Callable[..., Any]:
    """Return a function of the module in C.

    Raises
    ------
    LibraryError
        It was not compiled.
    """
    if not LOOPS.is_file():
        command = f"{sys.executable} -m dietcode.runtime.compile_launcher"
        raise LibraryError(f"{LOOPS}: missing; compile it: {command}")
    function: Callable[..., Any] = load_code(LOOPS)[name]
    return function
