"""What people see on a terminal: tables that fit it, bars that end, commands in groups, completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from small_libraries import built

from dietcode.cli.app import commands
from dietcode.cli.groups import GROUPS
from dietcode.cli.progress import ProgressBars
from dietcode.cli.remote import _print_jobs
from dietcode.cli.show import BenchTable
from dietcode.cli.tables import TableColumn, fitting, print_table
from dietcode.protocol import Job

COLUMNS = [
    TableColumn("id", whole=True),
    TableColumn("name"),
    TableColumn("a", rank=2),
    TableColumn("b", rank=1, right=True),
]
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

Lines = Callable[[], list[str]]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lines:
    """A terminal of 80 columns; returns a function that gives what was printed, without its colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return lambda: _STYLE.sub("", capsys.readouterr().out).splitlines()


def test_columns_are_left_out_by_rank() -> None:
    assert fitting(COLUMNS, [10, 10, 10, 10], 40) == [0, 1, 2, 3]
    assert fitting(COLUMNS, [10, 10, 10, 10], 39) == [0, 1, 3]
    assert fitting(COLUMNS, [10, 10, 10, 10], 29) == [0, 1]
    assert fitting(COLUMNS, [10, 10, 10, 10], 5) == [0, 1], "these are always shown"


def test_a_table_fits_and_names_what_it_leaves_out(narrow: Lines) -> None:
    print_table(COLUMNS, [("0" * 16, "x" * 100, "a" * 30, "b" * 30)])
    lines = narrow()
    assert max(map(cell_len, lines)) <= 80 and lines[-1] == "no room for: a, b"
    assert "0" * 16 in "".join(lines) and sum(line.count("x") for line in lines) == 100
    print_table(COLUMNS, [("1", "2", "3", "4")])
    assert not [line for line in narrow() if line.startswith("no room")]


def test_a_pipe_gets_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [("0" * 16, "x" * 60, "a" * 30, "b" * 30)])
    out = capsys.readouterr().out
    assert "a" * 30 in out and "b" * 30 in out and "no room" not in out


def test_jobs_fit(narrow: Lines) -> None:
    facts: dict[str, Any] = {"workload": "w", "target": {}, "created_at": "2026-01-02T03:04:05Z"}
    facts |= {"updated_at": facts["created_at"], "state": "waiting_for_runner"}
    _print_jobs([Job.model_validate(facts | {"id": "0123456789abcdef", "name": "bert-dense-ffn1-gelu"})])
    lines = narrow()
    assert max(map(cell_len, lines)) <= 80
    for word in ("0123456789abcdef", "bert-dense-ffn1-gelu", "waiting_for_runner"):
        assert any(word in line for line in lines), word


def test_a_comparison_fits(narrow: Lines) -> None:
    table = BenchTable()
    record = {"shape_vars": {"T": 128}, "category": 0, "micro_kernel": "14x32-partition"}
    record |= {
        "padding_ratio": 1.0,
        "predicted_gflops": 301.0,
        "measured_gflops": 300.0,
        "vendor_gflops": 150.0,
    }
    record |= {
        "vendor": "numpy",
        "max_rel_error": 1e-7,
        "in_company": {"measured_gflops": 290.0},
        "roof_gflops": 400.0,
        "peak_gflops": 400.0,
    }
    record["disturbed"] = None
    table.row(record)
    head, row = narrow()
    assert max(len(head), len(row)) <= 80
    assert "predicted" in head and "2.00" in row and "numpy" in row and "company" not in head


def test_a_library_fits(narrow: Lines, inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done = inside("inspect", built("order"))
    lines = _STYLE.sub("", done.stdout).splitlines()
    assert done.returncode == 0 and max(map(cell_len, lines)) <= 80


def step(stage: str, done: int, total: int) -> Any:
    return SimpleNamespace(stage=stage, message="m", done=done, total=total, best_gflops=None, secs_left=None)


@pytest.mark.parametrize("fails", [False, True])
def test_no_bar_pulses_after_the_end(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress = ProgressBars()
    try:
        with progress:
            progress.on_event(step("seed", 0, 0))
            progress.on_event(step("measure", 1, 4))
            assert progress._bars is not None
            assert progress._bars.tasks[0].finished, "a stage ends where the next one begins"
            progress.on_event(step("build", 0, 0))
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    tasks = progress._bars.tasks
    assert [task.total for task in tasks] == [1, 4, 1]
    assert [task.completed for task in tasks] == [1, 1, 0 if fails else 1]


def test_a_log_has_one_line_a_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    now = [0.0]
    monkeypatch.setattr("dietcode.cli.progress.time.monotonic", lambda: now[0])
    with ProgressBars() as progress:
        progress.print_line("running")
        for done in range(5):
            progress.on_event(step("seed", done, 4))
        progress.on_event(step("select", 0, 0))
        progress.on_event(step("select", 1, 1))
        progress.on_event(step("select", 0, 0))  # a doubt about what was selected
        for now[0] in (1.0, 59.0, 61.0, 62.0, 63.0):
            progress.on_event(step("measure", int(now[0]), 70))
    lines = capsys.readouterr().err.splitlines()
    expected = [
        "running",
        "seed 4/4: m",
        "select 1/1: m",
        "select: m",
        "measure 61/70: m",
        "measure 63/70: m",
    ]
    assert lines == expected


def test_every_command_is_in_one_group() -> None:
    command: Any = commands()
    assert {one.rich_help_panel for one in command.commands.values()} == set(GROUPS)


def test_help_lists_commands_by_group(inside: Any) -> None:
    text = inside("--help").stdout
    heads = [text.index(f"\n{group}:\n") for group in GROUPS]
    assert heads == sorted(heads) and "\nCommands:" not in text
    assert heads[0] < text.index("\n  tune ") < heads[1] < text.index("\n  submit ") < heads[2]
    command: Any = commands()
    for name in command.commands:
        assert len(re.findall(rf"^  {name} ", text, re.MULTILINE)) == 1, name
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text[heads[0] :], "each says all that it does in a line"


@pytest.mark.parametrize(
    ("words", "completed"),
    [("dietcode in", ["init", "inspect"]), ("dietcode tune --rpc", ["--rpc-tracker", "--rpc-key"])],
)
def test_completion(words: str, completed: list[str]) -> None:
    asked = {"_DIETCODE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("dietcode"))],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | asked,
        check=True,
    )
    assert done.stdout.split() == completed and done.stderr == ""
