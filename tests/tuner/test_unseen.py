"""The regret of the rule on shapes that it never saw."""

from __future__ import annotations

from typing import Any

import pytest
from small_runs import make_spec

from dietcode.tuner import assembly


@pytest.mark.thorough
def test_a_rule_that_saw_every_shape_has_none(tuned: Any) -> None:
    _, result = tuned()
    assert result.report["instances_are_exhaustive"] and result.report["rule"]["unseen"] is None


def test_a_range_that_was_sampled_is_judged_on_other_shapes(
    tuned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(shape_vars={"T": {"min": 1, "max": 1_000_000}}, dims={"m": "T", "n": 96, "k": 32})
    asked: list[Any] = []
    monkeypatch.setattr(
        assembly, "regret", lambda *given, old=assembly.regret: asked.append(given) or old(*given)
    )
    _, result = tuned(spec)
    unseen = result.report["rule"]["unseen"]
    assert not result.report["instances_are_exhaustive"]
    assert 500 < unseen["num_shapes"] < 2048
    assert 0 <= unseen["loss_mean"] <= unseen["loss_worst"] <= 1
    seen, fresh = asked
    assert len(seen[0]) == 4096 and len(fresh[0]) == unseen["num_shapes"]
    assert fresh[1].shape == (unseen["num_shapes"], len(result.report["selection"]["micro_kernels"]))


@pytest.mark.long
def test_a_bound_on_the_worst_loss_holds_for_the_rule_too(tuned: Any) -> None:
    ranges = {name: {"min": 1, "max": 120} for name in "MN"}
    free = {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "nk", "dtype": "float32"}}
    objective = {"binary_size": 0.0, "max_loss": 0.03}
    spec = make_spec(tensors=free, shape_vars=ranges, dims={"m": "M", "n": "N", "k": 32}, objective=objective)
    _, result = tuned(spec)
    rule = result.report["rule"]
    assert not result.report["instances_are_exhaustive"] and rule["num_leaves"] > 1
    assert rule["loss_worst"] < 0.005, "beyond the bound, as little as smoothing gives up"
