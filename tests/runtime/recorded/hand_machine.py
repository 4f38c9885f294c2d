"""A machine of a few blocks that NumPy computes, and variants of calls that note them."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm_ffi  # noqa: F401  whose functions the recorder calls
from numpy.typing import NDArray

from dietcode.runtime.recorder import Machine, Run, Site

WIDTH, NUM_IDS, MAX_ROWS, MAX_BATCH = 4, 9, 60000, 5000
ROW, NUMBER, SCALAR = range(3)  # types
SHAPES = tuple(torch.Size(shape) for shape in ((WIDTH,), (), ()))
EMBED, CELL, SCORE, SCALE, LATE = range(5)  # blocks
_BLOCKS = [  # operands, results, phase
    ((NUMBER,), (ROW,), 0),
    ((ROW,) * 4, (ROW, ROW), 0),
    ((ROW,), (SCALAR,), 0),
    ((ROW, SCALAR), (ROW,), 0),
    ((ROW,), (ROW,), 1),
]
ROOT, EQUAL, TENSOR, INT, FLOAT, TUPLE, LIST, RECORD, MADE, ANY, SLICE, ARGUMENT = range(12)
A_ROW = [TENSOR, ROW, 1, WIDTH]
A_RESULT = [1, 0, 0]  # the first one, float32
E = np.arange(NUM_IDS * WIDTH, dtype=np.float32).reshape(NUM_IDS, WIDTH) / 8
Array = NDArray[Any]


class Pair(NamedTuple):
    h: Any
    c: Any


def on_rows(block: int, *x: Array) -> tuple[Array, ...]:
    """Compute a block of rows [count, ...]."""
    if block == EMBED:
        return (E[x[0]],)
    if block == CELL:
        return x[0] + 2 * x[2], x[1] - x[3]
    if block == SCORE:
        return (x[0].sum(1),)
    return (x[0] * x[1][:, None],) if block == SCALE else (x[0] + 1,)


def machine(max_rows: int = MAX_ROWS) -> Machine:
    num_buffers, blocks = 0, []
    for operands, results, phase in _BLOCKS:
        blocks += [phase, MAX_BATCH, len(operands), len(results), 0]
        for type_ in operands:
            ids = type_ == NUMBER
            blocks += [type_, num_buffers, num_buffers + 1, int(ids), NUM_IDS if ids else -1]
            num_buffers += 2
        for type_ in results:
            blocks += [type_, num_buffers]
            num_buffers += 1
        blocks.append(-1)
    types = [3, 4 * WIDTH, WIDTH, 0, 4, 1, 1, 4, 1, 0]
    words = [num_buffers, max_rows, 0, 0, *types, 0, 0, 0, 0, len(_BLOCKS), *blocks, 0, 0, 0, 0, 0]
    return Machine(
        array("q", words), array("q", [num_buffers, len(_BLOCKS), *[0] * len(_BLOCKS), 0, 0]), SHAPES
    )


def _at(address: int, dtype: Any, *shape: int) -> Array:
    buffer = (ctypes.c_char * (4 * int(np.prod(shape)))).from_address(address)
    return np.frombuffer(buffer, dtype).reshape(shape)


class Computed:
    """What runs: a list of (block, count), and the rows."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int, int]] = []

    def __call__(self, block: int, depth: int, count: int, operands: Any, results: Any) -> None:
        self.runs.append((block, depth, count))
        types, given = _BLOCKS[block], []
        for type_, (table, positions) in zip(types[0], operands, strict=True):
            at = _at(positions, np.int32, count)
            rows = at if not table else _at(table, np.float32, int(at.max()) + 1, *SHAPES[type_])[at]
            given.append(rows)
        for type_, address, rows in zip(types[1], results, on_rows(block, *given), strict=True):
            _at(address, np.float32, count, *SHAPES[type_])[:] = rows


@contextmanager
def begun(made: Machine, max_bytes: int = 1 << 30) -> Iterator[Run]:
    """A run that NumPy computes; `Run.compute` has its runs."""
    run = Run(made, max_bytes)
    run.compute = Computed()
    run.begin()
    try:
        yield run
    finally:
        run.end()


def missed(site: Site, arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    return "missed", arguments


def site(made: Machine, *variants: list[int], objects: tuple[Any, ...] = ()) -> Site:
    found = Site(missed)
    for words in variants:
        found.add(made, array("q", words), objects)
    return found


def row_of(handle: Any) -> Array:
    """A copy of the row of a computed handle."""
    return _at(handle.row_address, np.float32, *(handle.type_shape or (1,))).copy()


EMBED_CALL = [1, INT, NUMBER, -1, 1, EMBED, 1, 0, *A_RESULT]
SCORE_CALL = [1, *A_ROW, 1, SCORE, 1, 0, *A_RESULT]
LATE_CALL = [1, *A_ROW, 1, LATE, 1, 0, *A_RESULT]
SCALE_CALL = [2, *A_ROW, FLOAT, SCALAR, 1, SCALE, 2, 0, 1, *A_RESULT]
PAIR_WORDS = [TUPLE, 2, *A_ROW, *A_ROW]
CELL_CALL = [2, *PAIR_WORDS, *PAIR_WORDS, 1, CELL, 4, 0, 1, 2, 3, TUPLE, 2, 1, 0, 0, 1, 1, 0]
