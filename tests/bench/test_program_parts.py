"""``dietcode bench`` of a program: where the time of a call with sample instances goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_libraries import untuned_library
from small_programs import pair_program, pair_weights

from dietcode.models import compiling
from dietcode.programs.compiling import compile_program

_FILE = """
class Pair:
    left = right = None
    def __init__(self, word, left=None, right=None):
        self.word, self.left, self.right = word, left, right

def samples():
    three = [Pair(0, Pair(at % 7), Pair(0, Pair(1), Pair(2))) for at in range(9)]
    return [Pair(3), *three]

one = [Pair(5)]
none = []
"""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a program whose libraries run, though nobody tuned them, and a file of instances."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "pairs.py").write_text(_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIETCODE_CACHE", str(folder / "cache"))
        patch.setattr(compiling, "make_library", untuned_library)
        compile_program(pair_program(), pair_weights(), folder / "pairs")
    return folder


def test_each_part_of_a_call(pairs: Path, inside: Any) -> None:
    given = "--samples", f"{pairs / 'pairs.py'}:samples", "--rounds", "1"
    done = inside("bench", pairs / "pairs", *given, "--instances", "0", "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert [one["dimensions"]["instances"] for one in records] == [1, 8, 10]
    assert records[0]["dimensions"] == {"instances": 1, "runs": 1, "rows": 1}
    # Of ten, one is a leaf and nine have three; merges are of two depths.
    assert records[-1]["dimensions"] == {"instances": 10, "runs": 3, "rows": 28 + 9 + 9}
    parts = {(part["blocks"][0], part["calls"], tuple(part["rows"])) for part in records[-1]["parts"]}
    assert {("block0", 1, (28, 28)), ("block1", 2, (9, 9))} == parts
    for record in records:
        for part in record["parts"]:
            assert part["share"] == pytest.approx(part["secs"] / record["secs"])
            assert part["categories"] and part["kernel_secs"] > 0 and part["vendor_secs"] > 0
        assert record["host"][-1]["operator"] == "control flow"
    done = inside("bench", pairs / "pairs", *given, "--instances", "1")
    assert "instances=1, runs=1, rows=1: a call takes" in " ".join(done.stdout.split()), done.stderr


def test_what_is_refused(pairs: Path, inside: Any) -> None:
    file = pairs / "pairs.py"
    library = next((pairs / "pairs" / "libraries").iterdir())
    for folder, options, words in (
        (pairs / "pairs", (), "is a program: give --samples FILE.py:NAME"),
        (pairs / "pairs", ("--samples", f"{file}:one", "--at", "B=3"), "and no --at"),
        (pairs / "pairs", ("--samples", f"{file}:none"), "allowed: a list of instances"),
        (pairs / "pairs", ("--samples", f"{file}:other"), "allowed: a list of instances"),
        (pairs / "pairs", ("--samples", "no.py:one"), "no.py: no such file"),
        (library, ("--samples", f"{file}:one"), "--samples is of programs"),
    ):
        done = inside("bench", folder, *options)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and words in done.stderr, done.stderr
