"""Paragraphs and tables of pages that commands write."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

_WIDTH = 110


def wrapped(text: str) -> str:
    """Return a paragraph."""
    return textwrap.fill(" ".join(text.split()), _WIDTH) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; its cells are written as they are."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"
