"""Processes that are started run this installation, not what lies in the folder of a command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from dietcode.lean import python_command

ROOT = Path(__file__).parents[1]


def test_a_clone_in_the_working_folder_is_not_run(tmp_path: Path) -> None:
    """As after ``pip install .`` in a clone, which a later version is pulled into."""
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").touch()
    (tmp_path / "json" / "tool.py").write_text("raise SystemExit('the wrong one')")
    command = python_command("json.tool", "--compact")
    done = subprocess.run(command, input="[1]", capture_output=True, text=True, cwd=tmp_path, check=True)
    assert json.loads(done.stdout) == [1]


def test_no_process_of_ours_is_started_otherwise() -> None:
    for folder in (ROOT / "dietcode", ROOT / "server"):
        for path in folder.rglob("*.py"):
            if path != ROOT / "dietcode" / "lean.py":
                assert 'sys.executable, "-m"' not in path.read_text(encoding="utf-8"), path
