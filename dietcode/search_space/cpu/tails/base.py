"""What an alternative for tails has to emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dietcode.search_space.cpu.kernel import Kernel, possible_rests
from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.sources import Block, Product


@dataclass(frozen=True)
class Tails(ABC):
    """How one micro-kernel computes tiles, those that reach past an edge among them."""

    kernel: Kernel

    @property
    def rests_of_rows(self) -> frozenset[int]:
        """What whole tiles may leave over; ``{0}`` where no tile reaches past that edge."""
        problem = self.kernel.problem
        return possible_rests(problem, problem.rows, self.kernel.micro_kernel.rows)

    @property
    def rests_of_columns(self) -> frozenset[int]:
        """The same for columns."""
        problem = self.kernel.problem
        return possible_rests(problem, problem.columns, self.kernel.micro_kernel.columns)

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
    def around_tasks(self) -> Iterator[Tails]:
        """Emit what precedes and what follows the tasks; the alternative as tasks use it."""
        yield self

    @property
    def spilled_vectors(self) -> int:
        """Vectors of each row that a tile in parts leaves through memory at once; 0 where none does."""
        return 0

    @abstractmethod
    def tile(self, at: Block, products: Sequence[Product], output: Output) -> None:
        """Emit one tile of the grid."""
