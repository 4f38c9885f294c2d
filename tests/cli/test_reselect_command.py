"""``dietcode reselect`` on a folder; on a job it is among the tests of the service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_libraries import built

from dietcode.cli.reselect import parse_objective
from dietcode.errors import RequestError


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dietcode", "reselect", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("given", "means"),
    [
        (["max_kernels=3"], {"max_kernels": 3}),
        (
            ["binary_size=0.1, max_loss = 0.2", "weight=flops"],
            {"binary_size": 0.1, "max_loss": 0.2, "weight": "flops"},
        ),
        (["reproducible=true"], {"reproducible": True}),
        (["max_bytes=null"], {"max_bytes": None}),
    ],
)
def test_what_an_objective_may_look_like(given: list[str], means: dict[str, object]) -> None:
    assert parse_objective(given) == means


@pytest.mark.parametrize("given", ["", "max_kernels", "=3", "max_kernels=", "a=1,,b=2", "a={"])
def test_what_it_may_not_look_like(given: str) -> None:
    with pytest.raises(RequestError, match="--objective: ") as caught:
        parse_objective([given])
    assert "\n" not in str(caught.value)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--objective", "max_kernels=1"), "-o DIR is missing"),
        (("--objective", "max_kernel=1", "-o", "new"), "objective.max_kernel: unknown field"),
        (("--objective", "max_kernels=1", "-o", "new"), "does not hold its measurements"),
        ((), "--objective"),
    ],
)
def test_a_folder_that_is_refused(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    """The library of the tests was not tuned: its report holds no measurements."""
    done = run(built("dense"), *(tmp_path / "new" if a == "new" else a for a in arguments))
    assert done.returncode in {1, 2} and done.stdout == ""
    assert done.stderr.count("\n") == 1 and says in done.stderr, done.stderr
    assert not (tmp_path / "new").exists()


def test_neither_a_folder_nor_a_job(tmp_path: Path) -> None:
    done = run(tmp_path / "none", "--objective", "max_kernels=1")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    done = run("0123456789abcdef", "--objective", "max_kernels=1", "-o", tmp_path / "new")
    assert done.returncode == 2 and "is no folder here" in done.stderr
    assert not (tmp_path / "new").exists()
