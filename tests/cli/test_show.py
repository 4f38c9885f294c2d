"""Texts are shown as they are, whatever is in them."""

from __future__ import annotations

from typing import Any

import pytest

from dietcode.cli.show import show_library, show_targets

HOSTILE = "[/x] [bold]no[/bold] :smile:"
LOSS = {"loss_mean": 0.0, "loss_worst": 0.0}


def test_a_library_is_shown_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = {
        "name": "dense",
        "workload": {"op": {"einsum": "mk,nk->mn"}},
        "files": {"library.so": {"bytes": 1}},
        "runtime": {"bytes": 2},
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


def test_targets_are_shown_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_targets([{"kind": "llvm", "reason": HOSTILE, "build": True, "measure": False}])
    assert HOSTILE in capsys.readouterr().out
