"""Run in a process of its own: every buffer ends, or begins, at a page that may not be touched."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
from compiled import all_tails, cpu_target, make_problem

from dietcode.search_space.limits import TAILS
from dietcode.search_space.problem import Stage
from dietcode.search_space.reference import reference

_LIBC = ctypes.CDLL(None, use_errno=True)
_KEPT: list[mmap.mmap] = []


def guarded(array: Any, at_end: bool) -> Any:
    """A copy between two forbidden pages that touches one of them."""
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    area = mmap.mmap(-1, size + 2 * page)
    _KEPT.append(area)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for forbidden in (start, start + page + size):
        assert _LIBC.mprotect(ctypes.c_void_p(forbidden), ctypes.c_size_t(page), 0) == 0
    offset = page + (size - array.nbytes if at_end else 0)
    copy = np.frombuffer(area, np.float32, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def main(mcpu: str) -> None:
    """Small shapes around one tile, in every combination of edges."""
    target = cpu_target(mcpu)
    lanes = target.lanes()
    stages = [Stage("bias", tensor="bias"), Stage("residual", tensor="R")]
    for einsum, constant in (("mk,nk->mn", True), ("mk,kn->mn", False), ("bmk,bnk->bmn", False)):
        problem = make_problem(einsum, stages=stages, constant=constant)
        kernel = all_tails(problem, (3, 2 * lanes), target)
        for m, n, k in (
            (1, 1, 1),
            (3, 2 * lanes, 4),
            (4, 2 * lanes + 1, 5),
            (2, lanes, 3),
            (7, 3 * lanes, 1),
        ):
            extents = {"b": 2, "m": m, "n": n, "k": k}
            inputs = kernel.random_inputs(extents)
            expected = reference(problem, inputs)
            for at_end in (True, False):
                given = [guarded(value, at_end) for value in kernel.arguments(inputs)]
                for category, tails in enumerate(TAILS):
                    output = guarded(np.full(kernel.output_shape(extents), np.nan, np.float32), at_end)
                    kernel.module["run"](*given, output, category)
                    assert np.allclose(output, expected, rtol=1e-4, atol=1e-4), (einsum, extents, tails)
                if constant:
                    packed = guarded(np.full_like(given[1], np.nan), at_end)
                    kernel.module["pack"](guarded(inputs["W"], at_end), packed)
                    assert np.array_equal(packed, given[1])
    print("done")  # noqa: T201 - what the test waits for


def touch_the_guard() -> None:
    """What must crash, or this check checks nothing."""
    one = guarded(np.zeros(16, np.float32), at_end=True)
    ctypes.memset(one.ctypes.data, 0, 17 * 4)


if __name__ == "__main__":
    if sys.argv[1] == "touch":
        touch_the_guard()
    else:
        main(sys.argv[1])
