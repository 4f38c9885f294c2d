"""Rules that tell shapes apart by remainders, where a device serves multiples by other micro-kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from dietcode.dispatcher.rule import regret
from dietcode.dispatcher.sample import FittingSample, best_rule
from dietcode.dispatcher.tree import has_modulus


def sample(best_of: Any, max_leaves: int | None = None) -> FittingSample:
    """Shapes of two variables up to 48, and two categories, of which the other one is a tenth slower."""
    bindings = np.stack(np.meshgrid(np.arange(1, 49), np.arange(1, 49)), axis=-1).reshape(-1, 2)
    best = best_of(*bindings.T).astype(np.int64)
    throughput = np.where(np.arange(2) == best[:, None], 1.0, 0.9)
    return FittingSample(bindings, throughput, best, np.full(len(best), 1 / len(best)), max_leaves)


def test_a_variable_whose_multiples_are_served_by_another_is_divided() -> None:
    given = sample(lambda t, s: (s % 8 == 0) & (t > 20))
    plain, rule = (best_rule(("T", "S"), given, divisors) for divisors in ((), (8, 4)))
    assert not has_modulus(plain.root)
    assert (rule.root.variable, rule.root.divisor, rule.num_leaves) == ("S", 8, 3)
    assert (rule.predict(given.bindings) == given.best).all()
    assert plain.num_leaves > 10
    unseen = np.asarray([[400, 64], [400, 65], [3, 64]])
    assert rule.predict(unseen).tolist() == [1, 0, 0]


def test_with_few_leaves_less_is_lost() -> None:
    given = sample(lambda t, s: (s % 4 == 0) & (t > 20), max_leaves=6)
    losses = []
    for divisors in ((), (8, 4)):
        rule = best_rule(("T", "S"), given, divisors)
        assert rule.num_leaves <= 6
        losses.append(regret(rule.predict(given.bindings), given.throughput, given.weights)[0])
    assert losses[0] > 0.005 > losses[1]


def test_where_remainders_say_nothing_thresholds_stay() -> None:
    rule = best_rule(("T", "S"), sample(lambda t, s: t + 0 * s > 20), (8, 4))
    assert not has_modulus(rule.root) and rule.num_leaves == 2
