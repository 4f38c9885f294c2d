"""A program in C++ calls a library: the example of docs/cpp.md, compiled by the commands that stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_libraries import ROOT, SPECS, built

NAME = "small-dense"


@pytest.fixture(scope="module")
def folder() -> Path:
    SPECS[NAME] = yaml.safe_load((ROOT / "examples" / f"{NAME}.yaml").read_text()) | {
        "target": {"kind": "llvm"}
    }
    try:
        return built(NAME)
    finally:
        del SPECS[NAME]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("c++") is None:
        pytest.skip("this machine has no C++ compiler")
    page = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    commands = block.partition("./call")[0].replace("-o call", '-o "$program"')
    place = tmp_path_factory.mktemp("cpp") / "call"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euc", commands],
        check=True,
        cwd=ROOT,
        env=os.environ | {"program": str(place), "PATH": path},
    )
    return place


def call(program: Path, folder: Path, *numbers: int) -> subprocess.CompletedProcess[str]:
    from dietcode.runtime.compile_launcher import LAUNCHER

    words = [program, folder, LAUNCHER, *map(str, numbers)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("value", [1, 5, 33, 64])
def test_a_program_gets_right_results(program: Path, folder: Path, value: int) -> None:
    """Every element is 256 · 0.5 · 0.25 − 1."""
    (packed,) = json.loads((folder / "manifest.json").read_text())["packed"].values()
    done = call(program, folder, packed["lanes"], value)
    category = 0 if value <= 32 else 1
    said = f"category {category}, Y[0, 0] = 31, Y[T-1, 511] = 31\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_what_does_not_fit_is_refused(program: Path, folder: Path) -> None:
    done = call(program, folder, 2, 33)
    assert done.returncode and "Invalid" in done.stderr and "pack" in done.stderr
