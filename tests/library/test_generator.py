"""What is kept for later is kept for the code that generated it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dietcode
from dietcode.library.generator import generator_digest

PACKAGE = Path(dietcode.__file__).parent


@pytest.mark.parametrize(
    ("file", "counts"),
    [("search_space/cpu/kernel.py", True), ("backends/cpu/forms.py", True), ("cli/app.py", False)],
)
def test_a_change_of_generating_code_is_noticed(file: str, counts: bool, tmp_path: Path) -> None:
    package = shutil.copytree(PACKAGE, tmp_path / "dietcode", ignore=shutil.ignore_patterns("__pycache__"))
    before = generator_digest(package)
    assert before == generator_digest()  # wherever it is installed
    (package / file).write_bytes((package / file).read_bytes() + b"\n# other")
    generator_digest.cache_clear()
    assert (generator_digest(package) != before) is counts
