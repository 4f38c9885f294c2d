"""Texts are shown as they are, whatever is in them."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from small_libraries import copy_of, facts, rewrite_manifest

from dietcode.cli.app import run
from dietcode.cli.common import local_time
from dietcode.cli.show import _classes_text, _node, show_library, show_targets
from dietcode.cli.show_model import show_model_times
from dietcode.workload.block import BlockNode, read_node

HOSTILE = "[/x] [bold]no[/bold] :smile:"
LOSS = {"loss_mean": 0.0, "loss_worst": 0.0}


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (BlockNode("softmax", ("X", "mask"), (("axis", "n"),)), "softmax(X, mask; axis n)"),
        (BlockNode("clip", ("X",), (("low", 0.0), ("high", 6.0))), "clip(X; low 0.0, high 6.0)"),
        (
            read_node("Y", {"maxpool": "X", "dims": "npqc", "window": [3, 2], "padding": 1}),
            "maxpool(X; dims npqc, window [3, 2], strides [1], padding [1])",
        ),
        (BlockNode("exp", ("X",)), "exp(X)"),
    ],
)
def test_a_node_of_a_block_is_one_expression(node: BlockNode, shown: str) -> None:
    assert _node(node.to_json()) == shown


def test_a_library_is_shown_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = {
        "name": "dense",
        "workload": {"op": {"einsum": "mk,nk->mn"}},
        "files": {"library.so": {"bytes": 1}},
        "runtime": {"bytes": 2},
        "num_threads": 2,
        "requires": {},
    }
    dispatch: dict[str, Any] = {
        "categories": [{"category": 0, "micro_kernel": "6x16"}],
        "table": {"variables": ["T"], "rows": [{"T": [1, 8], "category": 0}]},
    }
    kernel = {"category": 0, "provenance": HOSTILE, "bytes": 3, "instances_served": 8}
    report: dict[str, Any] = {
        "target": {"mcpu": "haswell", "num_cores": 2},
        "device": {"name": HOSTILE},
        "seed": {"tile": [6, 16], "from_workload": "sha256:0", "reason": HOSTILE},
        "space": {"measured": 1, "failed": []},
        "calibration": {"kappa": 1.0},
        "rounds": [{"message": f"round 1 {HOSTILE}"}],
        "selection": LOSS | {"num_free_choice": 1, "objective_met": False, "reason": HOSTILE},
        "rule": LOSS | {"num_leaves": 1, "depth": 0},
        "micro_kernels": [kernel | {"f_local": {"median_fit_error": 0.0}}],
        "instances": [],
        "left_out": {"sm_75": HOSTILE},
    }
    show_library(manifest, dispatch, report)
    shown = capsys.readouterr().out
    assert f"round 1 {HOSTILE}\n" in shown
    assert shown.count(HOSTILE) == 6, "the table shows it too"
    assert "predicted loss not known:\n            one micro-kernel was measured" in shown
    assert "mean" not in shown and "\nrule        1 leaves, depth 0\n" in shown
    assert "\nthreads     2, as tuned; dietcode.load(DIR, num_threads=N)" in shown
    report["space"]["measured"] = 2
    show_library(manifest, dispatch, report)
    assert "\n            against the 2 measured\n" in capsys.readouterr().out
    report["rounds"][-1]["stop"] = "seconds"
    show_library(manifest, dispatch, report)
    assert "against the 2 measured; the budget's seconds cut the search off\n" in capsys.readouterr().out


def test_alignment_classes_are_told_in_words() -> None:
    classes = [{"multiple": 8, "dims": "kn"}, {"multiple": 4, "dims": "k"}, {"multiple": 1, "dims": ""}]
    said = _classes_text(classes)
    assert said == (
        "up to 8 elements at a time where 8 divides k and n; up to 4 elements at a time where 4 divides k; "
        "else as fixed extents allow"
    )


ORDERS = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\nnext"  # which terminals obey


def places(data: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    for name, value in data.items() if isinstance(data, dict) else enumerate(data[:1]):
        if isinstance(value, (dict, list)):
            yield from places(value, *above, name)
        elif isinstance(value, str):
            yield (*above, name)


def test_no_text_of_a_library_gives_orders_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, tried = copy_of("dense", tmp_path / "dense"), 0
    manifest = (folder / "manifest.json").read_bytes()
    for file in ("report.json", "manifest.json"):
        right = (folder / file).read_bytes()
        for place in places(json.loads(right)):
            wrong = inside = json.loads(right)
            for name in place[:-1]:
                inside = inside[name]
            inside[place[-1]] += ORDERS
            (folder / file).write_text(json.dumps(wrong))
            if file == "report.json":
                files = json.loads(manifest)["files"]
                rewrite_manifest(folder, files=files | {file: facts((folder / file).read_bytes())})
            for options in ((), ("--json",)):
                monkeypatch.setattr(sys, "argv", ["dietcode", "inspect", str(folder), *options])
                with contextlib.suppress(SystemExit):
                    run()
                said = "".join(capsys.readouterr())
                assert not set(said) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}, place
                tried += 1
        (folder / file).write_bytes(right)
        (folder / "manifest.json").write_bytes(manifest)
    assert tried > 60


@pytest.mark.thorough
def test_no_value_of_a_report_gives_more_than_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its publisher may have signed any: it is shown, or refused in one line, and no traceback comes."""
    folder, refused = copy_of("dense", tmp_path / "dense"), 0
    manifest = json.loads((folder / "manifest.json").read_bytes())
    monkeypatch.setattr(sys, "argv", ["dietcode", "inspect", str(folder)])
    for file in ("report.json", "dispatch.json"):
        right = json.loads((folder / file).read_bytes())
        for way in values(right):
            for odd in (None, -1, 1 << 70, 1e308, "x\x1b[31m", [], {"": None}):
                wrong = json.loads(json.dumps(right))
                inside = wrong
                for name in way[:-1]:
                    inside = inside[name]
                inside[way[-1]] = odd
                (folder / file).write_text(json.dumps(wrong))
                files = manifest["files"] | {file: facts((folder / file).read_bytes())}
                rewrite_manifest(folder, files=files)
                try:
                    run()
                except SystemExit as stop:
                    assert stop.code == 1, (way, odd)
                    said = capsys.readouterr().err
                    assert said.count("\n") == 1 and said.strip().isprintable(), (way, odd, said)
                    refused += 1
                assert "\x1b" not in "".join(capsys.readouterr()), (way, odd)
        (folder / file).write_text(json.dumps(right))
    assert refused > 20


def values(inside: Any) -> Iterator[tuple[Any, ...]]:
    """Where the values of a document are, lists and mappings among them; of a list the first alone."""
    named = inside.items() if isinstance(inside, dict) else enumerate(inside[:1])
    for name, one in named:
        yield (name,)
        if isinstance(one, dict | list):
            for below in values(one):
                yield (name, *below)


def test_targets_are_shown_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_targets([{"kind": "llvm", "reason": HOSTILE, "build": True, "measure": False}])
    assert HOSTILE in capsys.readouterr().out


def test_times_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 1, 31, 23, 30, 5, 700, tzinfo=UTC)
    try:
        for zone, shown in (("JST-9", "2026-02-01 08:30:05+09:00"), ("UTC0", "2026-01-31 23:30:05+00:00")):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert local_time(at) == shown
    finally:
        monkeypatch.undo()
        time.tzset()


def test_milliseconds_of_tiny_parts_are_not_rounded_to_none(capsys: pytest.CaptureFixture[str]) -> None:
    part = {
        **{"digest": "0123456789abcdef", "kind": "block", "operator": "add", "calls": 1, "share": 0.5},
        **{"secs": 4.2e-7, "kernel_secs": 4.2e-7, "vendor_secs": 0.25, "vendor": "torch-eager"},
        **{"disturbed": None, "categories": [0]},
    }
    times = {"dimensions": {"L": 3}, "parts": [part], "host": [], "secs": 8.4e-7, "disturbed": None}
    show_model_times(times)
    shown = capsys.readouterr().out
    assert "L=3: a call takes 0.00084 ms" in shown and "0.00042" in shown and "250.000" in shown
