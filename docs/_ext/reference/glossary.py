"""The words of the method, as the glossary defines them."""

from __future__ import annotations

from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "glossary.md"


def text() -> str:
    """The glossary's table of the method: word, symbol, meaning."""
    _, _, section = _PAGE.read_text(encoding="utf-8").partition("\n## The method\n\n")
    return section.partition("\n\n")[0]
