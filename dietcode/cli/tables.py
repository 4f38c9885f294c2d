"""Tables that fit the terminal: columns that matter less are left out where it is narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dietcode.workload.text import printable

_PIPE_WIDTH = 200  # a pipe has no width; keep rows whole
_FRAME_CELLS = 3  # of a column: its line and a space on both sides


@dataclass(frozen=True)
class TableColumn:
    """One column.

    Attributes
    ----------
    rank : int
        0: always shown. Of the others that with the highest rank is the first to be left out.
    right : bool
        Whether its cells are flush right.
    whole : bool
        Whether its cells are never broken over two lines: ids, which are copied.
    """

    name: str
    rank: int = 0
    right: bool = False
    whole: bool = False


class _Terminal(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """As Rich prints; what a file or a server says is no order to the terminal."""
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **options)


def terminal() -> Console:
    """Return the standard output; cells and lines are shown as they are, without what a terminal obeys."""
    console = _Terminal(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def print_table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], *, title: str = "", caption: str = ""
) -> None:
    """Print a table; on a terminal without the columns that it has no room for, which are named below it.

    Parameters
    ----------
    columns : sequence of TableColumn
    rows : sequence of sequences of str
        A cell for each column.
    title, caption : str
        Above and below the table.
    """
    console = terminal()
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(column.name), *(cell_len(row[i]) for row in rows), 0) for i, column in enumerate(columns)
    ]
    shown = fitting(columns, [width + _FRAME_CELLS for width in widths], console.width - 1)
    table: Any = Table(title=printable(title) or None)
    for i in shown:
        column = columns[i]
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=column.whole)
    for row in rows:
        table.add_row(*(Text(row[i], overflow="fold") for i in shown))
    left_out = [column.name for i, column in enumerate(columns) if i not in shown]
    notes = [caption] if caption else []
    notes += [f"no room for: {', '.join(left_out)}"] if left_out else []
    console.print(table)
    for note in notes:
        console.print(note)


def fitting(columns: Sequence[TableColumn], widths: Sequence[int], width: int) -> list[int]:
    """Return which columns are shown.

    Parameters
    ----------
    widths : sequence of int
        Of each column, in cells, with what frames it.
    width : int
        Cells that there are for all of them.
    """
    shown = list(range(len(columns)))
    while sum(widths[i] for i in shown) > width:
        least = max(shown, key=lambda i: columns[i].rank)
        if columns[least].rank == 0:
            break
        shown.remove(least)
    return shown
