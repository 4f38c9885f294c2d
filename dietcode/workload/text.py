"""Quoting what a user gave, so that every message stays one short line. Standard library only."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def clip(value: object, limit: int = 60) -> str:
    """Return ``repr(value)`` on one line, cut to `limit` characters.

    Parameters
    ----------
    value : object
        Anything that came out of a spec.
    limit : int
        Most characters returned.
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer with more digits than Python converts
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` with whitespace and unprintable characters made harmless, cut to `limit` characters."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable(text: str) -> str:
    """Return `text` with each character that a terminal would obey, but the ends of lines, as ``?``."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def counted(number: int, noun: str) -> str:
    """Return ``1 micro-kernel``, ``2 micro-kernels``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def suggest(name: object, allowed: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` when an allowed name is close to `name`, else nothing."""
    if not isinstance(name, str):
        return ""
    close = difflib.get_close_matches(name[:100], list(allowed), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def field_path(parts: Iterable[object]) -> str:
    """Return a dotted path; a part that is no plain name is quoted and clipped."""
    return ".".join(str(part) if _PLAIN.fullmatch(str(part)) else clip(part, 40) for part in parts)
