"""What the table of blocks says of the bandwidth of a copy: instances within L2 and beyond it stand apart."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="benchmarks are run beside PyTorch")

from benchmarks.block_rows import ROWS
from benchmarks.blocks import line, summary


def record(rows: int, secs: float, copy: float, beyond: bool) -> dict[str, Any]:
    return {
        "shape_vars": {"M": rows},
        "secs": {"dietcode": secs, "copy": copy},
        "predicted_secs": secs,
        "ratio": 2.0,
        "max_rel_error": 0.0,
        "bytes": rows * 6144,
        "beyond_l2": beyond,
    }


RECORDS = [record(4096, 4.0, 2.0, True), record(2, 8.0, 1.0, False), record(1000, 1.0, 0.9, True)]


def test_shares_of_a_copy_by_instance() -> None:
    found = summary(ROWS["layernorm"], RECORDS)
    shares = [(one["shape_vars"]["M"], one["beyond_l2"], one["share"]) for one in found["shares_of_copy"]]
    assert shares == [(2, False, 0.125), (1000, True, 0.9), (4096, True, 0.5)]
    assert found["copy"]["worst"] == 0.5 and found["copy"]["worst_at"] == {"M": 4096}
    assert found["copy_within_l2"]["worst"] == 0.125, "which no bar is asked of"
    assert found["is_met"] is False and "50% of a copy" in line("layernorm", found)
    assert summary(ROWS["layernorm"], RECORDS[1:])["is_met"] is True


def test_rows_without_that_bar_have_no_shares() -> None:
    found = summary(ROWS["attention"], RECORDS)
    assert "shares_of_copy" not in found and "copy" not in found
