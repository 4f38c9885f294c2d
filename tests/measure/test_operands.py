"""Operands of the latest points are kept between the readings of candidates."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from dietcode.measure import cpu_worker
from dietcode.measure.calibration import reference_problem

PROBLEM = reference_problem()
POINTS = [{"m": 3, "n": 32, "k": 8}, {"m": 64, "n": 32, "k": 8}, {"m": 3, "n": 48, "k": 8}]


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> OrderedDict[Any, Any]:
    found: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr(cpu_worker, "_OPERANDS", found)
    return found


def operands(point: dict[str, int]) -> list[Any]:
    found: list[Any] = cpu_worker._tensors(PROBLEM, point, 8)
    return found


def test_a_point_has_the_same_operands_again_and_constants_are_shared() -> None:
    (x, w, y), (other, same, _), (_, wider, _) = map(operands, POINTS)
    assert [one.shape for one in (x, w, y)] == [(3, 8), (1, 4, 8, 8), (3, 32)]
    assert same is w and other is not x and wider is not w
    assert all(one is before for one, before in zip(operands(POINTS[0]), (x, w, y), strict=True))
    assert np.isnan(y.numpy()).all() and np.isfinite(x.numpy()).all()


def test_the_oldest_are_dropped(kept: OrderedDict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = operands(POINTS[0]), operands(POINTS[1])
    monkeypatch.setattr(cpu_worker, "_KEPT_BYTES", sum(size for _, size in kept.values()))
    assert operands(POINTS[1])[0] is second[0]
    third = operands(POINTS[2])
    assert operands(POINTS[2])[0] is third[0]
    assert operands(POINTS[0])[0] is not first[0]


def test_what_is_too_large_to_be_kept_is_measured_all_the_same(
    kept: OrderedDict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_worker, "_KEPT_BYTES", 0)
    assert len(operands(POINTS[0])) == 3 and not kept
