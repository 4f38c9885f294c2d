"""docs/attacks.md: each attack has a test that is there."""

from __future__ import annotations

import re

from pages import DOCS, ROOT

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_ROW = re.compile(r"^\| (?!attack |---).*\|$", re.MULTILINE)


def test_each_attack_has_a_test_that_is_there() -> None:
    text = (DOCS / "attacks.md").read_text(encoding="utf-8")
    rows = [row for row in _ROW.findall(text) if not row.startswith("|---")]
    assert len(rows) > 50
    missing = []
    for row in rows:
        named = _TEST.findall(row)
        assert named, row
        for file, name in named:
            path = ROOT / file
            if not path.is_file() or f"def {name}(" not in path.read_text(encoding="utf-8"):
                missing.append(f"{file}::{name}")
    assert missing == []
