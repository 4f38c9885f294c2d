"""What each part of the search earns: full, MetaSchedule always or never, without mutation, without learning.

    python -m benchmarks.ablation SPEC [--secs 60] [--trials 96] [--seeds full=5,no-learning=5] [--rounds 3]
        [--keep] [--runs 4]

Every run starts with empty records and has the same seconds. Afterwards all libraries are timed in turns at
the same instances; a run's score at an instance is its throughput over the best of all runs there. With
``--keep`` the runs that ``build/benchmarks/ablation`` holds of the same budget are not repeated, and with
``--runs`` the command ends after so many new ones: all takes longer than a machine is quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import calm, done_once, result_path, write
from benchmarks.stand import Stand
from dietcode.tuner.search import Search
from dietcode.tuner.tune import make_library, write_library
from dietcode.workload.parse import load_spec
from dietcode.workload.spec import Spec

ROOT = Path(__file__).resolve().parent.parent
FACTS = "run.json"
VARIANTS = {
    "full": Search(),
    "always-metaschedule": Search(well_served=math.inf),
    "no-metaschedule": Search(metaschedule=False),
    "no-mutation": Search(mutation=False),
    "no-learning": Search(learning=False),
}


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("spec", type=Path)
    parser.add_argument("--secs", type=float, default=60.0)
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--seeds", default=",".join(f"{name}=5" for name in VARIANTS), help="runs of each")
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="use runs of earlier commands")
    parser.add_argument(
        "--runs", type=int, help="tune so many times at most, and time nothing where more are left"
    )
    arguments = parser.parse_args()
    spec = load_spec(arguments.spec)
    budget = spec.budget.model_copy(update={"seconds": arguments.secs, "trials": arguments.trials})
    spec = spec.model_copy(update={"budget": budget})
    seeds = {name: int(count) for name, count in (pair.split("=") for pair in arguments.seeds.split(","))}
    names = list(seeds)
    folder = ROOT / "build" / "benchmarks" / "ablation" / f"{spec.name}-{arguments.secs:g}-{arguments.trials}"
    runs, num_tuned = [], 0
    for state in range(max(seeds.values())):
        for name in [name for name in names if state < seeds[name]]:
            found = kept(folder / f"{name}-{state}") if arguments.keep else None
            if found is None:
                if num_tuned == arguments.runs:
                    return
                found = tune(spec, name, state, folder / f"{name}-{state}")
                num_tuned += 1
            runs.append(found)
    rows = judge(runs, arguments.instances, arguments.rounds)
    result = {
        "workload": spec.name,
        "secs": arguments.secs,
        "trials": arguments.trials,
        "instances": rows,
        "summary": {name: summary([run for run in runs if run["variant"] == name]) for name in names},
        "runs": [{key: value for key, value in run.items() if key != "folder"} for run in runs],
    }
    for name, facts in result["summary"].items():
        print(name, facts)
    write(result_path(f"ablation-{spec.name}"), result)


def kept(folder: Path) -> dict[str, Any] | None:
    """Return the run that an earlier command left in a folder."""
    path = folder / FACTS
    return {**json.loads(path.read_text()), "folder": folder} if path.exists() else None


def tune(spec: Spec, variant: str, state: int, folder: Path) -> dict[str, Any]:
    """One run from nothing."""
    search = replace(VARIANTS[variant], random_state=state)
    with empty_cache():
        result, secs, disturbed = done_once(lambda: make_library(spec, search=search))
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_library(result, folder)
    rounds = result.report["rounds"]
    print(variant, state, f"{secs:.0f} s, {result.measured} measured;", rounds[-1]["message"], flush=True)
    facts = {
        "variant": variant,
        "random_state": state,
        "secs": secs,
        "secs_disturbed": disturbed,
        "measured": result.measured,
        "pruned": len(result.report["space"]["pruned"]),
        "metaschedule_trials": (result.report["seed"] or {}).get("trials", 0),
        "stop": rounds[-1]["stop"],
        "chosen": result.report["selection"]["micro_kernels"],
        "provenance": {k: len(v["chosen"]) for k, v in result.report["provenance"].items()},
    }
    (folder / FACTS).write_text(json.dumps(facts))
    return {**facts, "folder": folder}


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """A cache folder of its own for a while."""
    before = os.environ.get("DIETCODE_CACHE")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["DIETCODE_CACHE"] = cache
        try:
            yield
        finally:
            del os.environ["DIETCODE_CACHE"]
            if before is not None:
                os.environ["DIETCODE_CACHE"] = before


def judge(runs: list[dict[str, Any]], num_instances: int, num_rounds: int) -> list[dict[str, Any]]:
    """Time every run's library in turns; adds ``score_mean`` and ``score_worst``, of what nothing disturbed.

    Returns
    -------
    list of dict
        The instances, and what disturbed them.
    """
    with Stand(runs[0]["folder"]) as stand:
        paths: dict[str, str | None] = {str(i): f"{run['folder']}/library.so" for i, run in enumerate(runs)}
        rows = []
        for row in stand.instances(num_instances):
            timed = stand.in_turns(paths, row["shape_vars"], num_rounds)
            facts = {"shape_vars": row["shape_vars"], "disturbed": timed.disturbed}
            rows.append(facts | {"secs": list(timed.values())})
    secs = np.asarray([row["secs"] for row in calm(rows, "the scores")])  # [num_instances, num_runs]
    scores = np.min(secs, axis=1, keepdims=True) / secs
    for run, score in zip(runs, scores.T, strict=True):
        run["score_mean"] = float(np.exp(np.log(score).mean()))
        run["score_worst"] = float(score.min())
    return rows


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and the range over the seeds."""
    scores = [run["score_mean"] for run in runs]
    return {
        "score_median": float(np.median(scores)),
        "score_least": min(scores),
        "score_most": max(scores),
        "secs_median": float(np.median([run["secs"] for run in runs])),
        "measured_median": float(np.median([run["measured"] for run in runs])),
    }


if __name__ == "__main__":
    main()
