"""Chunks: what a core has of a loop, cut so that any thread may do some of it.

    for number in parallel(P · CHUNKS):
      core, chunk = number // CHUNKS, number % CHUNKS
      if so many chunks are worth their cost: the chunk's part of the core's part

Where a core comes late, or is shared with another program's thread, the others do the chunks that it has not
begun. A chunk has some of the tiles of its core's part, each as it would have been without: what is computed
has the same bits for any number of chunks. All loops of a call have as many iterations, so that a thread
begins with the first chunk of the same core each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.limits import CHUNKS
from dietcode.search_space.tir import TirOps, as_int64, i64

LEAST_STEPS = 1 << 16
"""Instructions on vectors of a chunk, at least: 10 to 20 µs, where beginning one takes 0.01 to 0.12 µs."""


def part(total: Any, number: Any, parts: Any) -> tuple[Any, Any]:
    """Return the bounds of one of `parts` nearly equal ranges of ``0…total``."""
    bind, parts = TirOps().bind, as_int64(parts)
    return bind(tirx.truncdiv(number * total, parts)), bind(tirx.truncdiv((number + 1) * total, parts))


@dataclass(frozen=True)
class Chunk:
    """One of some chunks of a range, or of ranges within each other.

    Attributes
    ----------
    number, count : int64 expressions
        Which one, and of how many: a power of two up to `CHUNKS`.
    """

    number: Any
    count: Any

    def cut(self, bounds: tuple[Any, Any]) -> tuple[tuple[Any, Any], Chunk]:
        """Return the chunk's part of a range, and a chunk of what lies within.

        Parameters
        ----------
        bounds : tuple of int64 expressions
            It is cut into as many parts as it has elements, or into `count` if these are fewer.

        Returns
        -------
        tuple of int64 expressions
            The part's first element, and the one after the last.
        Chunk
            Of the ranges of which each element of this one has one.
        """
        bind = TirOps().bind
        parts = _power_of_two(tirx.min(bounds[1] - bounds[0], self.count))
        inner = bind(tirx.truncdiv(self.count, parts))
        outer = Chunk(bind(tirx.truncdiv(self.number, inner)), parts)
        return outer.of(bounds), Chunk(bind(tirx.truncmod(self.number, inner)), inner)

    def of(self, bounds: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the chunk's part of a range; it may be empty."""
        bind = TirOps().bind
        low, high = part(bounds[1] - bounds[0], self.number, self.count)
        return bind(bounds[0] + low), bind(bounds[0] + high)

    def turned(self, condition: Any) -> Chunk:
        """Return the chunk of this number from the end where a condition holds."""
        return Chunk(
            TirOps().bind(tirx.Select(condition, self.count - 1 - self.number, self.number)), self.count
        )


@contextmanager
def chunked(
    num_cores: int, num_steps: Callable[[], Any] | None, serial: bool = False
) -> Iterator[tuple[Any, Chunk]]:
    """Loop over the chunks of each core's part.

    Parameters
    ----------
    num_cores : int
        Parts of the loop.
    num_steps : callable, optional
        ``() -> int64 expression``, emitted within a task: instructions on vectors that the whole loop takes,
        about. Without it no part is cut: tasks keep something from one of their tiles to the next.
    serial : bool
        Whether one thread runs all.

    Yields
    ------
    (int64 expression, Chunk)
        The core, and the chunk of what it has.
    """
    bind, chunks = TirOps().bind, 1 if num_cores == 1 or serial else CHUNKS
    loop, total = T.serial if serial else T.parallel, num_cores * chunks
    # A loop of one iteration without annotations is dropped; its buffers would then be lifted out of the
    # device's scope, which does not compile.
    with loop(i64(0), i64(total), annotations={"dietcode.tasks": total}) as number:
        if chunks == 1:
            yield number, Chunk(i64(0), i64(1))
            return
        core, chunk = (bind(of(number, i64(chunks))) for of in (tirx.truncdiv, tirx.truncmod))
        count = i64(1)
        if num_steps is not None:
            count = _power_of_two(tirx.truncdiv(num_steps(), i64(num_cores * LEAST_STEPS)))
        apart = bind(tirx.truncdiv(i64(chunks), count))
        with T.If(tirx.truncmod(chunk, apart) == 0), T.Then():
            yield core, Chunk(bind(tirx.truncdiv(chunk, apart)), count)


def _power_of_two(most: Any) -> Any:
    """Return the largest power of two up to `CHUNKS` that is not above `most`, 1 where none is."""
    found, power, bind = i64(1), 2, TirOps().bind
    most = bind(most)
    while power <= CHUNKS:
        found = tirx.Select(most >= power, i64(power), found)
        power *= 2
    return bind(found)
