"""Tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_PAGE = re.compile(r"(?<!\()docs/([a-z-]+)\.md")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown of one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def code(text: object) -> str:
    """Literal text; nothing where there is none."""
    return f"`{text}`" if str(text) else ""


def prose(text: str) -> str:
    """One line of a docstring or of a help text: its reST literals and names of pages as Markdown."""
    plain = " ".join(text.split()).replace("``", "`")
    return _PAGE.sub(r"[\1](\1.md)", plain)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
