"""What an alternative for tails has to emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from dietcode.search_space.cpu.kernel import Block, Kernel, possible_rests


class Tails(ABC):
    """How one micro-kernel computes tiles, those that reach past an edge among them.

    Attributes
    ----------
    rests_of_rows, rests_of_columns : frozenset of int
        What whole tiles may leave over; ``{0}`` where no tile reaches past that edge.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        problem, tile = kernel.problem, kernel.tile
        self.rests_of_rows = possible_rests(problem, problem.rows, tile.rows)
        self.rests_of_columns = possible_rests(problem, problem.columns, tile.columns)

    @property
    def cuts_rows(self) -> bool:
        """Whether a tile may reach past the last row."""
        return self.rests_of_rows != {0}

    @property
    def cuts_columns(self) -> bool:
        """Whether a tile may reach past the last column."""
        return self.rests_of_columns != {0}

    @property
    def cuts_vectors(self) -> bool:
        """Whether a vector may reach past the last column."""
        return any(rest % self.kernel.lanes for rest in self.rests_of_columns)

    @contextmanager
    def around_tasks(self) -> Iterator[None]:
        """Emit what precedes and what follows the tasks."""
        yield

    def start_task(self) -> None:  # noqa: B027 - most alternatives need nothing
        """Emit what each task begins with, its buffers."""

    @abstractmethod
    def tile(self, at: Block) -> None:
        """Emit one tile of the grid."""
