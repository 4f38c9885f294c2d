"""One build of the documentation, which the tests here look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from needs import of_extra
from pages import DOCS

sys.path.insert(0, str(DOCS / "_ext"))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages, built as `make docs` does; a warning fails it."""
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason=of_extra("docs"))
    root = tmp_path_factory.mktemp("docs")
    options = ["--fail-on-warning", "--nitpicky", "--keep-going", "--quiet"]
    folders = ["--doctree-dir", str(root / "doctrees"), str(DOCS), str(root / "html")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--builder", "html", *options, *folders],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return root / "html"
