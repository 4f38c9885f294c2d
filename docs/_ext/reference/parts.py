"""The parts of pages that are written from the code, so that nothing that exists is left out.

They stand in the sources of the pages, between ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->``, to be
read there without a build. ``make docs-tables`` writes them; a test holds them against the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from reference import api, commands, errors, files, gpus, interface, metrics, settings, spec, tables

DOCS = Path(__file__).resolve().parents[2]
PARTS: dict[str, Callable[[], str]] = {
    "commands": commands.text,
    "errors": errors.text,
    "gpus": gpus.text,
    "metrics": metrics.text,
    "problems": interface.problems,
    "routes": interface.routes,
    "settings": settings.text,
    "tables": tables.text,
    **{f"spec {name}": part for name, part in spec.PARTS.items()},
    **api.PARTS,
}
_FILE = re.compile(r"file (\S+)")
_FIGURE = re.compile(r"figure ([a-z0-9-]+): (.+)")

_BEGIN = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)
_PART = re.compile(r"^<!-- generated: (.+?) -->\n.*?^<!-- end: \1 -->$", re.MULTILINE | re.DOTALL)


def fill(text: str, page: str) -> str:
    """Return a page's text with its generated parts as the code is now.

    Raises
    ------
    ValueError
        It names a part that does not exist, or a part has no end.
    """

    def part(match: re.Match[str]) -> str:
        return f"<!-- generated: {match[1]} -->\n\n{_text(match[1], page)}\n\n<!-- end: {match[1]} -->"

    begun = _BEGIN.findall(text)
    ended = [match[1] for match in _PART.finditer(text)]
    if begun != ended:
        open_ones = ", ".join(name for name in begun if name not in ended)
        raise ValueError(f"{page}: no <!-- end: NAME --> of the generated part {open_ones}")
    return _PART.sub(part, text)


def _text(name: str, page: str) -> str:
    if shown := _FILE.fullmatch(name):
        return files.source(shown[1]).strip()
    if shown := _FIGURE.fullmatch(name):
        return files.figure(shown[1], shown[2]).strip()
    if name not in PARTS:
        raise ValueError(f"{page}: no generated part {name!r}; there are {', '.join(PARTS)}")
    return PARTS[name]().strip()


def write() -> list[Path]:
    """Write the generated parts of all pages; return the pages that changed."""
    changed = []
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        filled = fill(text, path.name)
        if filled != text:
            path.write_text(filled, encoding="utf-8")
            changed.append(path)
    return changed
