"""The budget of a model's parts: shared out by their work, and a word on parts that it ended too early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietcode.errors import LibraryError
from dietcode.runtime.manifest import read_json
from dietcode.workload.stops import SECONDS, TRIALS

LEAST_MEASURED = 4  # micro-kernels of each part, whatever the seconds
_LEAST_SHARE = 0.25  # of what all parts alike are given, of a part with hardly any FLOPs
_MORE = 1.5  # times the seconds that ended a search, for which it goes on
_MAX_NAMES = 2


@dataclass(frozen=True)
class PartBudget:
    """What one part may use.

    Attributes
    ----------
    trials : int
    seconds : float
    """

    trials: int
    seconds: float


@dataclass(frozen=True)
class PartSearch:
    """How far the search of a part went.

    Attributes
    ----------
    measured : int
        Micro-kernels that worked, those included that were given up after their first wave.
    stop : str or None
        What ended it, as `dietcode.tuner.decisions` has it.
    budget : PartBudget
        What it was allowed.
    """

    measured: int
    stop: str | None
    budget: PartBudget

    def goes_on_with(self, budget: PartBudget) -> bool:
        """Whether another budget would take the search further."""
        if self.stop == SECONDS:
            return budget.seconds >= _MORE * self.budget.seconds
        return self.stop == TRIALS and budget.trials > self.budget.trials

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        own = {"trials": self.budget.trials, "seconds": self.budget.seconds}
        return {"measured": self.measured, "stop": self.stop, "budget": own}


def shared_budgets(flops: Mapping[str, float], trials: int, seconds: float) -> dict[str, PartBudget]:
    """Return the budget of each part.

    Together they have `seconds` for each at most. What building a library takes is every part's alike, and so
    is half of the rest; the other half goes by FLOPs, so that the parts in which a model spends its time get
    more. Of the half that is alike, a part with less than its share of the FLOPs gets less: what is lost
    there is lost in a small part of the time.

    Parameters
    ----------
    flops : mapping of str to float
        Of all calls of each part.
    trials : int
        Of each part.
    seconds : float
        Of each part on average.
    """
    from dietcode.tuner.exploration import RESERVED_SECS  # needs the compiler, which servers do not import

    for_all = (seconds + min(seconds, RESERVED_SECS)) / 2
    total = sum(flops.values())
    to_share = (seconds - for_all) * len(flops)
    building = min(seconds, RESERVED_SECS)
    budgets = {}
    for part, own in flops.items():
        share = own / total if total else 1 / len(flops)
        alike = (for_all - building) * min(1.0, max(_LEAST_SHARE, share * len(flops)))
        budgets[part] = PartBudget(trials, round(building + alike + to_share * share, 1))
    return budgets


def search_of(report: Mapping[str, Any], budget: PartBudget) -> PartSearch:
    """Return how far the search went that a library's report tells of."""
    rounds, space = report["rounds"], report["space"]
    measured = int(space["measured"]) + len(space["pruned"])
    return PartSearch(measured, rounds[-1]["stop"] if rounds else None, budget)


def kept_search(file: Path) -> PartSearch | None:
    """Return what was kept of a search, or None where there is nothing.

    Parameters
    ----------
    file : Path
        Written with `PartSearch.to_json`.
    """
    try:
        data = read_json(file)
        own = data["budget"]
        return PartSearch(
            int(data["measured"]), data["stop"], PartBudget(int(own["trials"]), float(own["seconds"]))
        )
    except (LibraryError, KeyError, TypeError, ValueError):
        return None


def unfinished(parts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a sentence on the parts whose search the budget ended, and what to type; None where none is.

    Trials end most searches and are no reason for a word, unless they allowed a single micro-kernel.

    Parameters
    ----------
    parts : sequence of dict
        Of a model's report.
    """
    short = [part for part in parts if _is_short(part.get("search") or {})]
    if not short:
        return None
    total = sum(part["flops_at_most"] for part in parts)
    share = f", {sum(part['flops_at_most'] for part in short) / total:.0%} of the FLOPs" if total else ""
    fewest = sorted(short, key=lambda part: (part["search"]["measured"], -part["flops_at_most"]))[:_MAX_NAMES]
    names = ", ".join(f"{part['name']} with {part['search']['measured']}" for part in fewest)
    options = []
    if any(part["search"]["stop"] == SECONDS for part in short):
        asked = sum(part["search"]["budget"]["seconds"] for part in parts) / len(parts)
        options.append(f"--seconds {max(1, round(2 * asked))}")
    if any(part["search"]["stop"] == TRIALS for part in short):
        options.append(f"--trials {8 * LEAST_MEASURED}")
    return (
        f"the budget ended the search of {len(short)} of {len(parts)} parts{share}; fewest micro-kernels "
        f"measured: {names}; compile again with {' '.join(options)} to go on from there"
    )


def _is_short(search: Mapping[str, Any]) -> bool:
    stop = search.get("stop")
    return stop == SECONDS or (stop == TRIALS and search["measured"] < 2)
