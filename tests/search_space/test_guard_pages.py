"""Generated code touches nothing outside its tensors: beyond them a touch would end the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tvm.support.cc import get_cc

from dietcode.lean import without_torch
from dietcode.target.cpu import CpuTarget

SCRIPT = Path(__file__).with_name("guarded.py")
PARTS = ("contractions", "blocks", "products", "depthwise", "attentions")
LIMIT_SECS = 840  # a part with every case compiles for minutes where other tests run beside it
_ALL = bool(os.environ.get("DIETCODE_TEST_LONG"))  # each takes a minute then

pytestmark = pytest.mark.timeout(LIMIT_SECS + 60)


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which workspaces are guarded, too."""
    library = tmp_path_factory.mktemp("guarded") / "workspace.so"
    source = SCRIPT.with_name("guarded_workspace.cc")
    compiler = get_cc()
    assert compiler is not None, "libraries cannot be linked here either"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    here = os.pathsep.join([str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")])
    return without_torch(os.environ | {"PYTHONPATH": here}) | {"LD_PRELOAD": str(library)}


def run_guarded(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECS, check=False
    )


@pytest.mark.thorough
@pytest.mark.parametrize("parts", [PARTS] if not _ALL else [(part,) for part in PARTS], ids="-".join)
def test_no_touch_outside(target: CpuTarget, preloaded: dict[str, str], parts: tuple[str, ...]) -> None:
    done = run_guarded(preloaded, target.mcpu, *parts)
    assert done.returncode == 0, f"ended by {done.returncode} after {done.stdout}: {done.stderr[-2000:]}"
    assert tuple(done.stdout.split()) == parts


def test_the_guard_works(preloaded: dict[str, str]) -> None:
    done = run_guarded(preloaded, "touch", "tensor", "tensor-before", "workspace", "workspace-before")
    signals = done.stdout.split()
    assert len(signals) == 4 and "0" not in signals, done.stderr
