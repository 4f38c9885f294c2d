"""From the form of a problem to its cost model, search and report on CPUs; a new form is added here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dietcode.backends.cpu.domain import CpuDomain
from dietcode.backends.cpu.listed_domain import ListedDomain
from dietcode.backends.cpu.row_report import row_facts, tile_facts
from dietcode.backends.protocol import Domain
from dietcode.cost_model.cpu.attention import AttentionEstimator
from dietcode.cost_model.cpu.depthwise import DepthwiseEstimator
from dietcode.cost_model.cpu.estimator import TermEstimator
from dietcode.cost_model.cpu.products import ProductEstimator
from dietcode.cost_model.cpu.rows import RowEstimator
from dietcode.cost_model.model import Fitted
from dietcode.measure.records import Records
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.problem import Problem
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.task import Task

_SHARE_OF_TRIALS = 4  # one trial in four goes to the seed
_MAX_SEED_TRIALS = 32


def _no_facts(task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
    return {}


def _share(num_trials: int) -> int:
    return max(1, min(_MAX_SEED_TRIALS, num_trials // _SHARE_OF_TRIALS))


def _none(num_trials: int) -> int:
    return 0


@dataclass(frozen=True)
class CpuForm:
    """One form of problem on CPUs.

    Attributes
    ----------
    domain : callable
        ``(problem, target) -> Domain``.
    num_seed_trials : callable
        Trials of a budget that MetaSchedule may take; 0 where its schedules have no T0.
    report_facts : callable
        What a report holds for this form alone.
    measures_bandwidth : bool
        Whether a calibration has the bandwidth.
    """

    domain: Callable[..., Domain]
    num_seed_trials: Callable[[int], int]
    report_facts: Callable[[Task, Records, Fitted], Mapping[str, Any]]
    measures_bandwidth: bool = False


def _listed(
    estimator: type[TermEstimator], facts: Callable[..., Mapping[str, Any]], measures_bandwidth: bool = False
) -> CpuForm:
    """Return a form whose space is listed from the beginning, so that no T0 is sought."""
    return CpuForm(partial(ListedDomain, estimator_type=estimator), _none, facts, measures_bandwidth)


CPU_FORMS: dict[str, CpuForm] = {
    Problem.form: CpuForm(CpuDomain, _share, _no_facts),
    ProductProblem.form: _listed(ProductEstimator, tile_facts),
    RowProblem.form: _listed(RowEstimator, row_facts, measures_bandwidth=True),
    DepthwiseProblem.form: _listed(DepthwiseEstimator, tile_facts, measures_bandwidth=True),
    AttentionProblem.form: _listed(AttentionEstimator, row_facts, measures_bandwidth=True),
}
