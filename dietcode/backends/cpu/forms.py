"""From the form of a problem to its space and search on CPUs; a new form is added here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.backends.cpu.attention_domain import CpuAttentionDomain
from dietcode.backends.cpu.depthwise_domain import CpuDepthwiseDomain
from dietcode.backends.cpu.domain import CpuDomain
from dietcode.backends.cpu.product_domain import CpuProductDomain
from dietcode.backends.cpu.row_domain import CpuRowDomain
from dietcode.backends.cpu.row_report import depthwise_facts, row_facts
from dietcode.backends.protocol import Domain
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


def _product_facts(task: Task, records: Records, fitted: Fitted) -> dict[str, Any]:
    """Return why there is no T0 from MetaSchedule."""
    return {"seed_note": "not sought: every tile is in the space from the beginning"}


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


CPU_FORMS: dict[str, CpuForm] = {
    Problem.form: CpuForm(CpuDomain, _share, _no_facts),
    ProductProblem.form: CpuForm(CpuProductDomain, _none, _product_facts),
    RowProblem.form: CpuForm(CpuRowDomain, _none, row_facts, measures_bandwidth=True),
    DepthwiseProblem.form: CpuForm(CpuDepthwiseDomain, _none, depthwise_facts),
    AttentionProblem.form: CpuForm(CpuAttentionDomain, _none, row_facts, measures_bandwidth=True),
}
