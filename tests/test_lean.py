"""Processes that tune find no PyTorch, and those that do not tune are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from needs import of_extra

from dietcode.lean import with_torch, without_torch
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.local import LocalChildren

LOOK = "import importlib.util as u; print(u.find_spec('torch').origin if u.find_spec('torch') else None)"


@pytest.mark.skipif(find_spec("torch") is None, reason=of_extra("bench"))
def test_children_find_no_torch() -> None:
    def has_torch() -> bool:  # in here, so that it goes there by value
        import sys

        import tvm  # noqa: F401 - as a child has it

        return "torch" in sys.modules

    before = dict(os.environ)
    children = LocalChildren(CpuWorker(1), measures=False)
    try:
        assert children._runner.process is not None
        children._runner.process.send(has_torch)
        assert children._runner.process.recv() is False
        assert children._builders.submit(has_torch).result() is False
    finally:
        children.close()
    assert os.environ.get("PYTHONPATH") == before.get("PYTHONPATH")


def test_what_they_start_finds_none_either() -> None:
    look = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LOOK!r}], check=True)"
    once = without_torch(os.environ)
    assert without_torch(once) == once
    done = subprocess.run([sys.executable, "-c", look], env=once, capture_output=True, text=True, check=True)
    assert "without_torch" in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", "import torch"], env=once, capture_output=True, text=True, check=False
    )
    assert "ImportError: a process that tunes does without PyTorch" in done.stderr


def test_other_paths_stay() -> None:
    (first, *others) = without_torch({"PYTHONPATH": os.pathsep.join(["/a", "/b"])})["PYTHONPATH"].split(
        os.pathsep
    )
    assert first.endswith("without_torch") and others == ["/a", "/b"]


@pytest.mark.skipif(find_spec("torch") is None, reason=of_extra("bench"))
def test_who_compares_with_torch_finds_it_again() -> None:
    look = "from dietcode.lean import has_torch; import importlib.util as u; "
    look += "print(has_torch(), u.find_spec('torch').origin)"
    for environment, found in (
        (without_torch(os.environ), False),
        (with_torch(without_torch(os.environ)), True),
    ):
        done = subprocess.run(
            [sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True
        )
        installed, _, origin = done.stdout.partition(" ")
        assert installed == "True"
        assert ("without_torch" not in origin) is found


@pytest.mark.skipif(find_spec("torch") is None, reason=of_extra("bench"))
def test_commands_that_need_the_compiler_leave_it_out() -> None:
    before = "from dietcode.cli.common import need_compiler"
    for script, found in ((before, False), (f"{before}; need_compiler()", True)):
        done = subprocess.run(
            [sys.executable, "-c", f"{script}; {LOOK}"],
            env=with_torch(os.environ),
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("without_torch" in done.stdout) is found
