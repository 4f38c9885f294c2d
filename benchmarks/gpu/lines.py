"""Records as a GPU's machine reads them: lines of JSON, the last of which may be torn; what a pack says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a file; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1] if line]


def drop_torn(path: Path) -> None:
    """Cut a file after its last whole line: what wrote it may have been killed in the middle of one."""
    if path.exists():
        data = path.read_bytes()
        path.write_bytes(data[: data.rfind(b"\n") + 1])


def known_of(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last line of each micro-kernel, by its name."""
    return {line["name"]: line for line in lines if line.get("kind") == "micro_kernel"}


def read_facts(folder: Path) -> dict[str, Any]:
    """What a pack says: as it was packed, or as it was chosen from."""
    whole = folder / "pack.json.gz"
    data = gzip.decompress(whole.read_bytes()) if whole.is_file() else (folder / "pack.json").read_bytes()
    facts: dict[str, Any] = json.loads(data)
    return facts
