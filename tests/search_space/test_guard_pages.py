"""Generated code touches nothing outside its tensors: beyond them a touch would end the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dietcode.target.cpu import CpuTarget

SCRIPT = Path(__file__).with_name("guarded.py")


def run_guarded(argument: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), argument], capture_output=True, text=True, timeout=100, check=False
    )


def test_no_touch_outside(target: CpuTarget) -> None:
    done = run_guarded(target.mcpu)
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    assert done.stdout.strip() == "done"


def test_the_guard_works() -> None:
    assert run_guarded("touch").returncode < 0
