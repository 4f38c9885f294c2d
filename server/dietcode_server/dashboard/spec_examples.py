"""The workloads of ``examples/``, to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
# A wheel has them beside this file, a checkout at its root.
_FOLDERS = (_HERE / "examples", _HERE.parents[2] / "examples")


@dataclass(frozen=True)
class Example:
    """A spec to begin with.

    Attributes
    ----------
    about : str
        One sentence: the comment in its first line.
    """

    name: str
    about: str
    text: str


@cache
def spec_examples() -> dict[str, Example]:
    """Return all examples, by name."""
    folder = next(folder for folder in _FOLDERS if folder.is_dir())
    found = [(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
    return {name: Example(name, _about(text), text) for name, text in found}


def _about(text: str) -> str:
    first = text.partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
