"""Files of the project that a page shows in full, and plots of the evidence."""

from __future__ import annotations

import json
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
    """The plot of the first device that it was measured on, its caption and device; nothing without any."""
    evidence = ROOT / "docs" / "evidence"
    found = sorted(evidence.glob(f"*/{name}.svg"))
    if not found:
        return ""
    alt, folder = re.sub(r"[\[\]]", "", caption), found[0].parent.name
    record = json.loads(found[0].with_suffix(".json").read_text(encoding="utf-8"))
    of = f"[{record['device']}, {record['cores']} cores](evidence/{folder}/index.md)"
    where = f"{of}, commit {record['commit']}, {record['date']}"
    return f"![{alt}](evidence/{folder}/{name}.svg)\n\n*{caption}.* {where}.\n"
