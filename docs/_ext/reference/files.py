"""Files of the project that a page shows in full, and plots of the evidence."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_LANGUAGES = {".yaml": "yaml", ".c": "c", ".cpp": "cpp", ".py": "python"}


def source(path: str) -> str:
    """The text of a file, as a block of its language.

    Parameters
    ----------
    path : str
        From the project's root.
    """
    file = ROOT / path
    return f"```{_LANGUAGES[file.suffix]}\n{file.read_text(encoding='utf-8').rstrip()}\n```\n"


def figure(name: str, caption: str) -> str:
    """The plot of the first device that it was measured on, and its caption; nothing where it was on none."""
    evidence = ROOT / "docs" / "evidence"
    found = sorted(evidence.glob(f"*/{name}.svg"))
    if not found:
        return ""
    alt = re.sub(r"[\[\]]", "", caption)
    return f"![{alt}](evidence/{found[0].parent.name}/{name}.svg)\n\n*{caption}.*\n"
