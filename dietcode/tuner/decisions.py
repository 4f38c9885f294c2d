"""A round of the search as a line on record, and as a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.measure.records import Measurement
from dietcode.tuner.planner import Plan
from dietcode.workload.stops import CONVERGED, EXHAUSTED, SECONDS, STALLED, TRIALS

_MAX_NAMES = 3
STOPS = {
    CONVERGED: "stopped: another round promises {promise}, less than {least:.1%}",
    EXHAUSTED: "stopped: every micro-kernel of the space is measured",
    STALLED: "stopped: two rounds in a row gained less than {least:.1%}",
    TRIALS: "stopped: the trials of the budget are used up",
    SECONDS: "stopped: the seconds of the budget are used up",
}


def round_line(
    number: int,
    plan: Plan,
    measured: Sequence[Measurement],
    gain: float | None,
    missed: float | None,
    stop: str | None,
    job: str,
) -> dict[str, Any]:
    """Return a round as plain data.

    Parameters
    ----------
    gain : float or None
        Mean gain in predicted throughput that the round brought, a fraction; None for the first.
    missed : float or None
        Median relative error of what the learned f_local had predicted for the batch.
    stop : str or None
        Why it was the last one, a key of `STOPS`; None where it was not.
    job : str
        Digest of the instances and the search that it was planned for; other jobs share the records.
    """
    added = [candidate for expansion in plan.expansions for candidate in expansion.added]
    model = plan.model
    return {
        "number": number,
        "job": job,
        "measured": [m.micro_kernel.name for m in measured],
        "pruned": [m.micro_kernel.name for m in measured if m.pruned],
        "failed": [m.micro_kernel.name for m in measured if m.error is not None],
        "left": plan.num_left - len(measured),
        "promise": plan.promise,
        "gain": gain,
        "dropped": list(plan.dropped),
        "expansions": [expansion.to_json() for expansion in plan.expansions],
        "added": [c.micro_kernel.to_json() | {"provenance": c.provenance} for c in added],
        "model": None
        if model is None
        else {
            "features_version": plan.features_version,
            "num_waves": model.num_waves,
            "num_workloads": model.num_workloads,
            "expected_error": model.error,
            "missed": missed,
        },
        "stop": stop,
    }


def describe_round(line: Mapping[str, Any], least: float) -> str:
    """Return a round as one sentence."""
    parts = [f"round {line['number']}"]
    if line["measured"]:
        text = f"tried {len(line['measured'])}"
        for what in ("pruned", "failed"):
            text += f", {what} {len(line[what])}" if line[what] else ""
        parts.append(text)
    if line["gain"] is not None:
        promised = f" of {line['promise']:.1%} promised" if line["promise"] is not None else ""
        parts.append(f"gained {line['gain']:.1%}{promised}")
    if line["model"] and line["model"]["missed"] is not None:
        parts.append(f"the learned f_local missed by {line['model']['missed']:.1%}")
    if line["dropped"]:
        parts.append(f"{len(line['dropped'])} candidates get no vote")
    grown = line["expansions"]
    parts += [_expansion(expansion) for expansion in grown[:_MAX_NAMES]]
    if len(grown) > _MAX_NAMES:
        parts.append(f"and for {len(grown) - _MAX_NAMES} more shapes")
    if line["stop"]:
        promise = f"{line['promise']:.1%}" if line["promise"] is not None else "nothing"
        parts.append(STOPS[line["stop"]].format(promise=promise, least=least))
    return "; ".join(parts)


def _expansion(facts: Mapping[str, Any]) -> str:
    shape = ", ".join(f"{index}={extent}" for index, extent in facts["shape"].items())
    tiles = facts["micro_kernels"]
    more = f" and {len(tiles) - _MAX_NAMES} more" if len(tiles) > _MAX_NAMES else ""
    names = ", ".join(tiles[:_MAX_NAMES])
    return f"space grown for {shape} ({facts['cause']} leaves {facts['served']:.0%}): {names}{more}"
