"""The stated bound: 512 MiB for choosing and building over a million shapes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BOUND_MIB = 512
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape_vars", "dims"),
    [
        ({"T": {"min": 1, "max": 10**6}}, {"m": "T", "n": 768, "k": 768}),
        pytest.param(
            {name: {"min": 1, "max": 1000} for name in "MN"},
            {"m": "M", "n": "N", "k": 256},
            marks=pytest.mark.long,
        ),
    ],
    ids=["one variable", "two variables"],
)
def test_a_run_from_records_stays_below_the_bound(
    shape_vars: dict[str, Any], dims: dict[str, Any], own_cache: Path
) -> None:
    """The objective gives up nothing for size, so that the rule and the library are as large as they get."""
    outcome = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("bounded_child.py")), json.dumps([shape_vars, dims])],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    facts = json.loads(outcome.stdout.splitlines()[-1])
    assert not facts["torch"] and facts["instances"] == 4096 and facts["measured"] >= 25
    assert facts["rule"]["unseen"]["loss_mean"] <= 0.03
    assert facts["peak_mib"] < BOUND_MIB
