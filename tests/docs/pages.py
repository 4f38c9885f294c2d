"""What stands in the pages: their blocks, and output as a page shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES = re.compile(r"(\b[0-9a-f]{12,}\b|\d[\d.,]*(?:e[-+]?\d+)?|\s+|━+|─+|…)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page where it begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(text)]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each ``$ command`` of a console block, with the output that is shown below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]}{more.strip()}"
        yield command, output


def has_shape(actual: str, shown: str) -> bool:
    """Whether output has the shape of what a page shows.

    Numbers, ids, widths of tables and white space may differ, and a table may have other rows of as many
    cells; ``…`` stands for anything, in a line of its own for any number of lines.
    """
    pattern, last = "", ""
    for line in _lines(shown):
        row = f"│(?:[^│\n]*│){{{line.count('│') - 1}}}" if line.startswith("│") else ""
        if line == "…":
            pattern += r"(?:.*\n)*?"
        elif not row:
            pattern += _line(line) + r"\s*\n"
        elif row != last:
            pattern += rf"(?:{row}\n)+"
        last = row
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(actual))) is not None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _line(shown: str) -> str:
    return "".join(_piece(piece) for piece in _VARIES.split(shown.strip()))


def _piece(piece: str) -> str:
    if not _VARIES.fullmatch(piece):
        return re.escape(piece)
    if piece.isspace():
        return r"\s+"
    if piece == "…":
        return ".*"
    if piece[0] in "━─":
        return "[━─]+"
    if re.fullmatch("[0-9a-f]{12,}", piece):
        return "[0-9a-f]{12,}"
    return r"\d[\d.,]*(?:e[-+]?\d+)?"
