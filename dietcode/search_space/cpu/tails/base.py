"""The interface of the alternatives for tails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dietcode.search_space.cpu.kernel import Kernel, possible_remainders
from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.sources import Block, Product


@dataclass(frozen=True)
class Tails(ABC):
    """The way in which a micro-kernel computes tiles, also those that reach past an edge."""

    kernel: Kernel

    @property
    def row_remainders(self) -> frozenset[int]:
        """Possible remainders of the rows in tiles; ``{0}`` where no tile reaches past that edge."""
        problem = self.kernel.problem
        return possible_remainders(problem, problem.rows, self.kernel.micro_kernel.rows)

    @property
    def column_remainders(self) -> frozenset[int]:
        """Possible remainders of the columns."""
        problem = self.kernel.problem
        return possible_remainders(problem, problem.columns, self.kernel.micro_kernel.columns)

    @property
    def cuts_rows(self) -> bool:
        """Whether a tile may reach past the last row."""
        return self.row_remainders != {0}

    @property
    def cuts_columns(self) -> bool:
        """Whether a tile may reach past the last column."""
        return self.column_remainders != {0}

    @property
    def cuts_vectors(self) -> bool:
        """Whether a vector may reach past the last column."""
        return any(remainder % self.kernel.lanes for remainder in self.column_remainders)

    @contextmanager
    def around_tasks(self) -> Iterator[Tails]:
        """Emit what precedes and what follows the tasks; yield the alternative that tasks use."""
        yield self

    @property
    def spilled_vectors(self) -> int:
        """Vectors of each row that are spilled at once where a tile exists in part; 0 for none."""
        return 0

    @abstractmethod
    def tile(self, at: Block, products: Sequence[Product], output: Output) -> None:
        """Emit one tile of the grid."""
