"""Files of the project that a page shows in full, and plots of the evidence."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.evidence.pages import age
from benchmarks.facts import device_name

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
    """The plot that was measured last, on whatever device, its caption and device; nothing without any."""
    paths = sorted((ROOT / "docs" / "evidence").glob(f"*/{name}.svg"))
    if not paths:
        return ""
    records = {path: json.loads(path.with_suffix(".json").read_text(encoding="utf-8")) for path in paths}
    path = max(paths, key=lambda each: str(records[each]["date"]))
    alt, folder, record = re.sub(r"[\[\]]", "", caption), path.parent.name, records[path]
    of = f"[{device_name(record)}](evidence/{folder}/index.md)"
    where = f"{of}, commit {record['commit']}, {record['date']}{age(record)}"
    return f"![{alt}](evidence/{folder}/{name}.svg)\n\n*{caption}.* {where}.\n"
