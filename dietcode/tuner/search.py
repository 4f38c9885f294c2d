"""Options of the search; an ablation switches parts of it off."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Search:
    """Parts of the search.

    Attributes
    ----------
    metaschedule : bool
        Seed from MetaSchedule on the largest instance; otherwise from the register file alone.
    mutation : bool
        Grow the space around the seeds, around badly served instances, and over the treatment of tails.
    learning : bool
        Rank unmeasured micro-kernels by the learned f_local, and stop where it promises too little.
    pruning : bool
        Drop a micro-kernel after its first wave where it could win nowhere.
    random_state : int
        Of the learned f_local.
    well_served : float
        MetaSchedule is not run where a micro-kernel of the first round reaches this share of the reference
        kernel's rate at the largest instance; infinite: it always is.
    min_promise : float
        Mean gain in throughput, a fraction, that another round has to promise.
    least : int
        Micro-kernels that are measured even after the seconds of the budget; no part of the search itself, so
        that rounds on record stay those of the same job.
    """

    metaschedule: bool = True
    mutation: bool = True
    learning: bool = True
    pruning: bool = True
    random_state: int = 0
    well_served: float = 1.0
    min_promise: float = 0.005
    least: int = field(default=0, repr=False)
