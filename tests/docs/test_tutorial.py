"""The tutorial, done: its commands and its Python, in their order, in a fresh folder, with a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import DOCS, ROOT, blocks, commands, has_shape

from dietcode.lean import without_torch

PAGE = DOCS / "tutorial.md"
SPEC = "examples/small-dense.yaml"
# What a reader's budget finds in a minute is not needed here; two have a loss to show.
BUDGET = "budget: {trials: 3, seconds: 120}"
START_SECS = 60.0
_DONE = "::done::"
# `make test` tunes once, on the server; these measure again, or need a second run that does.
_ALL = bool(os.environ.get("DIETCODE_TEST_LONG"))
_MEASURE_AGAIN = ("dietcode bench ", "dietcode tune ", "dietcode records ", "cmp ")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# The page says that this line may come; beside other tests it often does.
_MAY_COME = "the measurements look disturbed"
_DISTURBED = re.compile(rf"^select.*: {_MAY_COME} \(.*\); measure again with --force .*\n", re.MULTILINE)
_NO_FIGURES = "disturbed:"  # of `dietcode bench`
_MEANS = re.compile(r"^(disturbed:|company:|of roof:|.*(largest error|of the vendor)).*\n", re.MULTILINE)


def _without_means(text: str) -> str:
    """What `dietcode bench` prints, less its means and what it says where there are none."""
    return _MEANS.sub("", text).replace(" (disturbed)", "")


class Terminal:
    """A shell in a folder, and one more in which the server runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir()
        for name, call in (("dietcode", "-m dietcode"), ("python", "")):
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
            (tools / name).chmod(0o755)
        # A dozen processes would import it, and none uses it.
        self.environment = without_torch(os.environ) | {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "DIETCODE_CACHE": str(folder / "cache"),
            "DIETCODE_TRUST": str(folder / "trust"),
            "DIETCODE_SERVE_DATA_DIR": str(folder / "data"),
            "DIETCODE_SERVE_PORT": "0",
            "COLUMNS": "160",
        }
        self.server: subprocess.Popen[str] | None = None
        self.shell: subprocess.Popen[str] | None = None

    def serve(self) -> str:
        """Start the server, as another terminal would; what it prints first."""
        log = self.folder / "serve.log"
        with log.open("w") as stream:
            self.server = subprocess.Popen(
                ["dietcode", "serve"],
                cwd=self.folder,
                env=self.environment,
                stderr=stream,
                text=True,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECS
        while not (found := re.search(r"serving (http://\S+),", log.read_text())):
            assert self.server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        self.environment["DIETCODE_SERVER"] = found[1]  # the reader's is at the default port
        return log.read_text()

    def run(self, command: str) -> tuple[str, int]:
        """A command's output, both streams as they come, and its exit status."""
        if self.shell is None:
            self.shell = subprocess.Popen(
                ["bash", "--norc"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        assert self.shell.stdin is not None and self.shell.stdout is not None
        self.shell.stdin.write(f"{command}\nstatus=$?; echo; echo {_DONE} $status\n")
        self.shell.stdin.flush()
        lines: list[str] = []
        for line in self.shell.stdout:
            if line.startswith(_DONE):
                return _DISTURBED.sub("", _ESCAPES.sub("", "".join(lines))), int(line.split()[1])
            lines.append(line)
        raise AssertionError(f"the shell ended in {command}: {''.join(lines)}")

    def close(self) -> None:
        """End both, and what they started."""
        for process, end in ((self.shell, signal.SIGKILL), (self.server, signal.SIGINT)):
            if process is not None:
                os.killpg(process.pid, end)
                process.communicate(timeout=60)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    (tmp_path / "examples").mkdir()
    text = (ROOT / SPEC).read_text()
    (tmp_path / SPEC).write_text(re.sub(r"^budget: .*$", BUDGET, text, flags=re.MULTILINE))
    yield made
    made.close()


@pytest.mark.thorough
@pytest.mark.timeout(900)  # two tuning runs, and a dozen processes that import the compiler
def test_the_tutorial_is_done(terminal: Terminal) -> None:
    """All of it in `make test-long`; else what needs one tuning run."""
    found = blocks(PAGE)
    wrong: list[str] = []
    left_out: set[str] = set()
    num_run = 0

    def check(line: int, what: str, shown: str, output: str, status: int) -> None:
        if _NO_FIGURES in output:
            shown, output = _without_means(shown), _without_means(output)
        assert status == 0, f"{PAGE.name}:{line}: {what} ended with {status}: {output}"
        if not has_shape(output, shown):
            wrong.append(f"{PAGE.name}:{line}: {what} printed\n{output}\nand the page shows\n{shown}")

    for number, block in enumerate(found):
        if block.language == "python":
            shown = found[number + 1]
            assert shown.language == "text", f"line {block.line}: what does it print?"
            (terminal.folder / "block.py").write_text(block.text)
            check(block.line, "the Python block", shown.text, *terminal.run("python block.py"))
            num_run += 1
        for command, below in commands(block) if block.language == "console" else ():
            if not _ALL and command.startswith(_MEASURE_AGAIN):
                left_out.update(begin for begin in _MEASURE_AGAIN if command.startswith(begin))
                continue
            if command == "dietcode serve":
                check(block.line, command, below, terminal.serve(), 0)
            else:
                check(block.line, command, below, *terminal.run(command))
            num_run += 1
    assert not wrong, "\n".join(wrong)
    text = PAGE.read_text(encoding="utf-8")
    assert f"A line `{_MAY_COME}` says" in text
    assert f"`{_NO_FIGURES}` says" in text
    assert num_run > (15 if _ALL else 9)
    assert left_out == (set() if _ALL else set(_MEASURE_AGAIN)), "the page has no such command any more"


def test_what_is_compared() -> None:
    assert has_shape("T=1   0.5\n", "T=33 1e-07")
    assert has_shape("a\nb\nc\nd\n", "a\n…\nd\n")
    assert has_shape("job 0123456789abcdef: queued", "job fedcba9876543210: queued")
    assert has_shape("", "") and has_shape("seed 1/2: done", "seed …")
    table = "┏━━┳━┓\n┃ T ┃ n ┃\n│ 1 │ a │\n└──┴─┘\n"
    assert has_shape(table.replace("└", "│ 2…3 │ other │\n└"), table)
    assert not has_shape(table.replace("│ 1 │ a │\n", ""), table)
    assert not has_shape(table.replace("│ 1 │", "│ 1 │ 2 │"), table)
    assert not has_shape(table.replace("n ┃", "m ┃"), table)
    assert not has_shape("job 0123456789abcdef: failed", "job fedcba9876543210: queued")
    assert not has_shape("a\nb\n", "a\n")
    assert not has_shape("", "a\n")
    assert not has_shape("ratio -", "ratio 1.0")
