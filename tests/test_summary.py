"""The end of a run says why tests were skipped, a line for each reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from needs import of_extra

@pytest.mark.parametrize("turn", range(5))
@pytest.mark.skipif(True, reason=of_extra("ray"))
def test_on_a_cluster(turn): ...

def test_here(): ...

@pytest.mark.parametrize("turn", range(2))
def test_there(turn):
    pytest.skip("this CPU has no AVX2")
"""


def test_skips_are_one_line_a_reason(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "from skip_summary import say_skips\n"
        "def pytest_terminal_summary(terminalreporter): say_skips(terminalreporter)\n"
    )
    own = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(own), "DIETCODE_NO_SKIPS": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, end = done.stdout.partition("- skipped")
    lines = [line.strip() for line in end.splitlines()[1:] if line.strip()][:2]
    assert lines == [
        "5  needs the extra ray: make test EXTRAS=server,dev,ray",
        "2  this CPU has no AVX2",
    ]
