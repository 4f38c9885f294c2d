"""Selection: Equation 1 by hand, Equation 2 against brute force, bounds, caps, what cannot serve."""

from itertools import combinations

import numpy as np
import pytest

from dietcode.dispatcher.covering import vote_counts, vote_cover, vote_ranks
from dietcode.dispatcher.problem import make_problem
from dietcode.dispatcher.select import Objective, Selection, select_categories
from dietcode.errors import TuningError

NAN = float("nan")


def losses(throughput, weights, chosen, flops=None):
    """Mean and worst loss, written the plain way: one instance after another."""
    cost = np.where(np.isfinite(throughput) & (throughput > 0), throughput, 0.0)
    best, got = cost.max(axis=1), cost[:, list(chosen)].max(axis=1)
    if (got <= 0).any():
        return 1.0, 1.0
    if flops is None:
        mean = 1 - float(np.prod((got / best) ** weights))
    else:
        mean = 1 - float((flops * weights * got).sum() / (flops * weights * best).sum())
    return mean, 1 - float((got / best)[weights > 0].min())


def subsets(count):
    return [set_ for size in range(1, count + 1) for set_ in combinations(range(count), size)]


def random_problem(seed, num_instances=20, num_kernels=8):
    """Throughput by padding to a tile, as a real micro-kernel's, with noise; and uneven weights and sizes."""
    rng = np.random.default_rng(seed)
    length = np.arange(1, num_instances + 1)[:, None] * 8
    tile = rng.integers(4, 100, num_kernels)
    throughput = length / (np.ceil(length / tile) * tile) * (tile / (tile + 20))
    throughput *= rng.uniform(0.9, 1.1, throughput.shape) * 1e12
    weights = rng.dirichlet(np.ones(num_instances))
    return throughput, length[:, 0] * 1e6, weights, rng.integers(1000, 9000, num_kernels)


def check_consistent(selection: Selection, throughput, weights, sizes, *, fixed=0, flops=None):
    chosen = list(selection.chosen)
    cost = np.where(np.isfinite(throughput) & (throughput > 0), throughput, 0.0)
    rows = np.arange(len(cost))
    assert len(set(chosen)) == len(chosen)
    assert selection.assignment.dtype == np.int64
    reached = cost[:, chosen][rows, selection.assignment]
    assert (reached == cost[:, chosen].max(axis=1)).all() and (reached > 0).all()
    mean, worst = losses(throughput, weights, chosen, flops)
    assert selection.loss_mean == pytest.approx(mean, abs=1e-9)
    assert selection.loss_worst == pytest.approx(worst, abs=1e-9)
    assert selection.num_bytes == fixed + sum(int(sizes[index]) for index in chosen)
    assert [point.num_bytes for point in selection.curve] == sorted(p.num_bytes for p in selection.curve)
    assert selection.objective_met == (selection.reason == "") and "\n" not in selection.reason


# Three instances, three micro-kernels. Best of each: 10, 8, 4.
HAND = np.array([[10.0, 9.0, 1.0], [2.0, 6.0, 8.0], [1.0, 3.0, 4.0]])
HAND_WEIGHTS = np.array([0.5, 0.25, 0.25])


DEFAULT = Objective()


def cover(num_votes, objective=DEFAULT, flops=(1.0, 1.0, 1.0)):
    problem = make_problem(HAND, flops, HAND_WEIGHTS, [100, 100, 100], objective)
    return vote_cover(problem, vote_ranks(problem), num_votes)


def test_equation_1_by_hand_one_vote():
    # 0 is voted for by instance 0: .5·1; 2 by instances 1 and 2: .25 + .25. Equal: the lower index is first.
    assert cover(1) == (0, 2)


def test_equation_1_by_hand_two_votes():
    # 1 is voted for by all: .5·.9 + .25·.75 + .25·.75 = .825; 0 gets .5, 2 gets .5. One category covers all.
    assert cover(2) == (1,)


def test_equation_1_by_hand_weighted_by_flops():
    # w p Cost: 0 gets 1·.5·10 = 5; 2 gets 4·.25·8 + 4·.25·4 = 12, and so comes first.
    assert cover(1, Objective(weight="flops"), (1.0, 4.0, 4.0)) == (2, 0)


def test_losses_by_hand():
    selection = select_categories(HAND, np.ones(3), HAND_WEIGHTS, [100] * 3, Objective(binary_size=0.2))
    # 0.9^.5 · .75^.5 = 0.8216: a loss of 0.178 for one micro-kernel instead of two.
    assert selection.chosen == (1,) and selection.num_bytes == 100
    assert selection.loss_mean == pytest.approx(1 - (0.9 * 0.75) ** 0.5)
    assert selection.loss_worst == pytest.approx(0.25)
    by_flops = select_categories(
        HAND, [1.0, 4.0, 4.0], HAND_WEIGHTS, [100] * 3, Objective(binary_size=0.2, weight="flops")
    )
    # Micro-kernel 1 reaches .5·9 + 1·6 + 1·3 = 13.5 of .5·10 + 8 + 4 = 17: a loss of .206, too much.
    # Micro-kernel 2 reaches .5·1 + 8 + 4 = 12.5. Both are needed.
    assert by_flops.loss_mean <= 0.2 and len(by_flops.chosen) == 2


def test_no_loss_allowed_gives_every_instance_its_best():
    selection = select_categories(HAND, np.ones(3), HAND_WEIGHTS, [1] * 3, Objective(binary_size=0))
    assert set(selection.chosen) == {0, 2} and selection.loss_mean == 0 and selection.loss_worst == 0
    assert [selection.chosen[position] for position in selection.assignment] == [0, 2, 2]


def test_vote_counts():
    assert vote_counts(1) == [1]
    assert vote_counts(5) == [1, 2, 3, 4, 5]
    many = vote_counts(200)
    assert many[:4] == [1, 2, 3, 4] and many[-1] == 200 and len(many) <= 24 and many == sorted(set(many))


OBJECTIVES = [
    Objective(),
    Objective(binary_size=0.0),
    Objective(binary_size=0.1),
    Objective(binary_size=0.05, max_loss=0.1),
    Objective(binary_size=0.3, max_loss=0.15),
    Objective(binary_size=0.05, weight="flops"),
    Objective(binary_size=0.05, weight="flops", max_loss=0.2),
]


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_against_brute_force(objective):
    found_bytes, least_bytes = 0, 0
    for seed in range(12):
        throughput, flops, weights, sizes = random_problem(seed)
        selection = select_categories(throughput, flops, weights, sizes, objective, fixed_bytes=500)
        by = flops if objective.weight else None
        check_consistent(selection, throughput, weights, sizes, fixed=500, flops=by)
        assert selection.objective_met
        worst = 1.0 if objective.max_loss is None else objective.max_loss
        assert selection.loss_mean <= objective.binary_size + 1e-8 and selection.loss_worst <= worst + 1e-8
        allowed = []
        for chosen in subsets(len(sizes)):
            mean, largest = losses(throughput, weights, chosen, by)
            if mean <= objective.binary_size + 1e-12 and largest <= worst + 1e-12:
                allowed.append(500 + int(sizes[list(chosen)].sum()))
        assert min(allowed) <= selection.num_bytes <= 1.1 * min(allowed)
        found_bytes, least_bytes = found_bytes + selection.num_bytes, least_bytes + min(allowed)
    assert found_bytes <= 1.01 * least_bytes


@pytest.mark.parametrize("weight", [None, "flops"])
@pytest.mark.parametrize("num", [1, 2, 3])
def test_smallest_loss_under_max_kernels_against_brute_force(weight, num):
    for seed in range(12):
        throughput, flops, weights, sizes = random_problem(seed)
        objective = Objective(binary_size=0.0, max_kernels=num, weight=weight)
        selection = select_categories(throughput, flops, weights, sizes, objective)
        by = flops if weight else None
        check_consistent(selection, throughput, weights, sizes, flops=by)
        assert len(selection.chosen) <= num
        least = min(losses(throughput, weights, set_, by)[0] for set_ in combinations(range(8), num))
        assert least - 1e-9 <= selection.loss_mean <= least * 1.05 + 1e-9
        assert selection.objective_met == (selection.loss_mean <= 1e-9)
        if not selection.objective_met:
            assert f"max_kernels {num}" in selection.reason and "binary_size" in selection.reason


@pytest.mark.parametrize("seed", range(6))
def test_smallest_loss_under_max_bytes_against_brute_force(seed):
    throughput, flops, weights, sizes = random_problem(seed)
    for cap in (int(sizes.min()), int(sizes.min()) + 3000, 12000):
        selection = select_categories(
            throughput, flops, weights, sizes, Objective(0.0, max_bytes=cap + 500), fixed_bytes=500
        )
        assert selection.num_bytes <= cap + 500
        fitting = [set_ for set_ in subsets(8) if sizes[list(set_)].sum() <= cap]
        least = min(losses(throughput, weights, set_)[0] for set_ in fitting)
        assert selection.loss_mean <= least * 1.05 + 1e-9


def test_caps_that_can_be_met_are_met_with_the_bounds():
    # Two small micro-kernels do the work of one large; with one kernel allowed, the large one is the answer.
    throughput = np.array([[10.0, 1.0, 10.0], [1.0, 10.0, 10.0]])
    arguments = (throughput, np.ones(2), [0.5, 0.5], [10, 10, 100])
    assert set(select_categories(*arguments, Objective()).chosen) == {0, 1}
    one = select_categories(*arguments, Objective(max_kernels=1))
    assert one.chosen == (2,) and one.objective_met and one.loss_mean == 0


def test_max_loss_that_a_cap_prevents_is_reported():
    throughput = np.array([[10.0, 5.0], [5.0, 10.0]])
    selection = select_categories(
        throughput, np.ones(2), [0.5, 0.5], [10, 10], Objective(0.9, max_loss=0.1, max_kernels=1)
    )
    assert not selection.objective_met
    assert "max_loss 0.1" in selection.reason and "0.5" in selection.reason
    assert "binary_size" not in selection.reason


def test_no_micro_kernel_fits():
    with pytest.raises(TuningError, match=r"max_bytes is 100, but .* has 160 bytes"):
        select_categories(
            HAND, np.ones(3), HAND_WEIGHTS, [60, 70, 80], Objective(max_bytes=100), fixed_bytes=100
        )


def test_caps_under_which_not_every_instance_is_served():
    throughput = np.array([[10.0, NAN], [NAN, 10.0]])
    with pytest.raises(TuningError, match="max_kernels 1"):
        select_categories(throughput, np.ones(2), [0.5, 0.5], [1, 1], Objective(max_kernels=1))


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "extra", [{}, {"max_loss": 0.25}, {"max_kernels": 3}, {"max_bytes": 15000}, {"weight": "flops"}], ids=str
)
def test_a_larger_binary_size_never_needs_more_bytes(seed, extra):
    throughput, flops, weights, sizes = random_problem(seed, num_instances=40, num_kernels=16)
    bounds = [0.0, 0.003, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.15, 0.3]
    results = [
        select_categories(throughput, flops, weights, sizes, Objective(binary_size=bound, **extra))
        for bound in bounds
    ]
    num_bytes = [result.num_bytes for result in results]
    assert num_bytes == sorted(num_bytes, reverse=True)
    met = [result.objective_met for result in results]
    assert met == sorted(met)


@pytest.mark.parametrize("bad", [NAN, 0.0, -1.0, float("inf")])
def test_unservable_micro_kernels_are_never_used_for_what_they_cannot_serve(bad):
    for seed in range(5):
        throughput, flops, weights, sizes = random_problem(seed)
        rng = np.random.default_rng(seed)
        throughput[rng.random(throughput.shape) < 0.6] = bad
        throughput[:, 3] = np.where(np.isfinite(throughput[:, 3]), throughput[:, 3], 1.0)
        throughput[np.arange(20), rng.integers(0, 8, 20)] = 5e11
        weights[::4] = 0
        weights /= weights.sum()
        for objective in (Objective(), Objective(0.5), Objective(0.5, max_loss=0.3)):
            selection = select_categories(throughput, flops, weights, sizes, objective)
            check_consistent(selection, throughput, weights, sizes)
            assert selection.objective_met


def test_an_instance_that_nothing_serves():
    throughput = np.array([[1.0, 2.0], [NAN, 0.0]])
    with pytest.raises(TuningError, match=r"1 of 2 instances .*number 1"):
        select_categories(throughput, np.ones(2), [1.0, 0.0], [1, 1], Objective())


def test_weightless_instances_cost_no_bytes_but_are_served():
    throughput = np.array([[10.0, 9.0, NAN], [1.0, 10.0, NAN], [1.0, NAN, 50.0], [NAN, NAN, 3.0]])
    selection = select_categories(throughput[:3], np.ones(3), [1.0, 0, 0], [5, 6, 7], Objective())
    assert selection.chosen == (0,) and selection.assignment.tolist() == [0, 0, 0]
    served = select_categories(throughput, np.ones(4), [1.0, 0, 0, 0], [5, 6, 7], Objective())
    assert served.chosen == (0, 2) and served.assignment.tolist() == [0, 0, 1, 1]
    assert served.loss_mean == 0 and served.loss_worst == 0


def test_equals_are_broken_by_bytes_then_by_index():
    throughput = np.full((4, 3), 7.0)
    arguments = (throughput, np.ones(4), np.full(4, 0.25))
    assert select_categories(*arguments, [9, 5, 5], Objective()).chosen == (1,)
    assert select_categories(*arguments, [5, 5, 5], Objective()).chosen == (0,)
    assert select_categories(*arguments, [0, 0, 0], Objective()).chosen == (0,)


def test_sizes_of_zero_are_free():
    throughput, flops, weights, _ = random_problem(1)
    selection = select_categories(throughput, flops, weights, np.zeros(8, int), Objective(0.2))
    assert selection.num_bytes == 0 and selection.loss_mean == 0


def test_results_are_reproducible_and_the_order_of_instances_is_irrelevant():
    throughput, flops, weights, sizes = random_problem(3, 60, 20)
    first, again = (select_categories(throughput, flops, weights, sizes, Objective()) for _ in range(2))
    assert first.chosen == again.chosen and first.curve == again.curve
    turned = select_categories(throughput[::-1], flops[::-1], weights[::-1], sizes, Objective())
    assert turned.chosen == first.chosen and (turned.assignment[::-1] == first.assignment).all()


def test_the_curve_holds_all_origins_and_is_true():
    throughput, flops, weights, sizes = random_problem(5, 60, 20)
    selection = select_categories(throughput, flops, weights, sizes, Objective(), fixed_bytes=10)
    assert {point.origin for point in selection.curve} == {"votes", "exact", "greedy"}
    assert any(point.num_votes == 1 and point.loss_mean == 0 for point in selection.curve)
    for point in selection.curve:
        assert (point.num_votes is None) == (point.origin == "greedy")
        mean, worst = losses(throughput, weights, point.chosen)
        assert point.loss_mean == pytest.approx(mean, abs=1e-9)
        assert point.loss_worst == pytest.approx(worst, abs=1e-9)
        assert point.num_bytes == 10 + sizes[list(point.chosen)].sum()
        assert point.num_kernels == len(point.chosen)
    told = selection.curve[0].to_json()
    assert told["chosen"] == list(selection.curve[0].chosen) and set(told) >= {"origin", "num_votes"}


def test_one_micro_kernel_and_one_instance():
    selection = select_categories([[3.0]], [1.0], [1.0], [8], Objective(max_loss=0.0, max_kernels=1))
    assert selection.chosen == (0,) and selection.objective_met and selection.assignment.tolist() == [0]


def test_large_problems_end():
    throughput, flops, weights, sizes = random_problem(0, num_instances=3000, num_kernels=60)
    selection = select_categories(throughput, flops, weights, sizes, Objective(max_loss=0.4))
    check_consistent(selection, throughput, weights, sizes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"throughput": np.ones(3)}, "throughput has shape"),
        ({"throughput": np.ones((0, 3))}, "throughput has shape"),
        ({"flops": np.ones(2)}, "flops has shape"),
        ({"weights": [0.5, 0.5, 0.5]}, "weights sum to 1.5"),
        ({"weights": [1.5, -0.5, 0.0]}, "weights has a negative"),
        ({"weights": [NAN, 0.5, 0.5]}, "weights has a negative or non-finite"),
        ({"size_bytes": [1, 2]}, "size_bytes has shape"),
        ({"size_bytes": [1, 2, -3]}, "size_bytes has a negative"),
        ({"flops": np.zeros(3), "objective": Objective(weight="flops")}, "flops"),
        ({"fixed_bytes": -1}, "fixed_bytes"),
    ],
)
def test_arguments_that_do_not_fit(change, message):
    arguments = {
        "throughput": HAND,
        "flops": np.ones(3),
        "weights": HAND_WEIGHTS,
        "size_bytes": [1, 1, 1],
        "objective": Objective(),
    }
    with pytest.raises(ValueError, match=message):
        select_categories(**(arguments | change))


@pytest.mark.parametrize(
    "fields",
    [
        {"binary_size": 1.0},
        {"binary_size": NAN},
        {"max_loss": 2},
        {"max_kernels": 0},
        {"max_bytes": 0},
        {"weight": "time"},
    ],
    ids=str,
)
def test_objectives_out_of_range(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        Objective(**fields)
