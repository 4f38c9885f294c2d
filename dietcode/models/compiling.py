"""``dietcode compile`` without its terminal: a graph becomes a bundle."""

from __future__ import annotations

import json
import operator
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.errors import LibraryError, TuningError
from dietcode.graph.graph import Graph
from dietcode.graph.model_request import OBJECTIVE, SECONDS, TRIALS
from dietcode.library.generator import generator_digest
from dietcode.measure.engine import Engine
from dietcode.measure.local import LocalMachine
from dietcode.models.budgets import (
    LEAST_MEASURED,
    PartBudget,
    PartSearch,
    kept_search,
    search_of,
    shared_budgets,
)
from dietcode.models.bundle_files import Weights, check_loads, write_bundle
from dietcode.models.bundling import bundle_manifest, described_files, report_of_model
from dietcode.models.planning import ModelPlan, PlannedPart, plan_graph
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import (
    CODE,
    check_writable,
    file_facts,
    pretty_json,
    read_manifest,
    write_folder,
)
from dietcode.tuner.events import Event, OnEvent, silent
from dietcode.tuner.result import TuneResult
from dietcode.tuner.search import Search
from dietcode.tuner.tune import make_library
from dietcode.workload.spec import Spec


@dataclass(frozen=True)
class Options:
    """How the parts of a model are tuned.

    Attributes
    ----------
    trials : int
        Of each part.
    seconds : float
        Of each part on average; `shared_budgets` divides the sum.
    target : dict
        As a spec has it; this machine's CPU where it is empty.
    objective : dict
        As a spec has it.
    force : bool
        Measure again what is known, and build again what was built.
    """

    trials: int = TRIALS
    seconds: float = SECONDS
    target: Mapping[str, Any] = field(default_factory=dict)
    objective: Mapping[str, Any] = field(default_factory=lambda: dict(OBJECTIVE))
    force: bool = False

    def fields(self) -> dict[str, Any]:
        """Return what the spec of each part has of them."""
        return {
            **({"target": dict(self.target)} if self.target else {}),
            "budget": {"trials": self.trials, "seconds": self.seconds},
            "objective": dict(self.objective),
        }


@dataclass(frozen=True)
class CompileResult:
    """What a compilation made.

    Attributes
    ----------
    report : dict
    secs : float
    num_tuned : int
        Libraries that were tuned now; others had been built before.
    """

    report: dict[str, Any]
    secs: float
    num_tuned: int


def compile_graph(
    graph: Graph,
    weights: Weights,
    folder: Path,
    *,
    options: Options | None = None,
    engine: Engine | None = None,
    on_event: OnEvent = silent,
    keep_weights: bool = True,
) -> CompileResult:
    """Tune the parts of a model and write its bundle.

    Parameters
    ----------
    weights : mapping of str to array
        Of the graph.
    folder : Path
        Where the bundle goes; an older one there is replaced.
    options : Options, optional
    engine : Engine, optional
        Where candidates are measured; this machine by default.
    keep_weights : bool
        Whether the weights go into the bundle.

    Raises
    ------
    ModelError, TargetError, TuningError, LibraryError
        See `dietcode.errors`; the folder stays as it was.
    """

    def planned(fields: Mapping[str, Any]) -> tuple[list[ModelPlan], str]:
        plan = plan_graph(graph, fields)
        return [plan], f"{plan.facts['num_operators']} operators become {len(plan.parts)} parts to tune"

    return compile_plan(planned, weights, folder, options, engine, on_event, keep_weights)


@dataclass(frozen=True)
class PlanChoice:
    """How one of several plans of the same model is chosen, when the parts of all are tuned.

    Attributes
    ----------
    by_bundles : callable or None
        ``(plans, folders) -> plan``, given the bundle of each; None where they do not run on this machine.
    by_plans : callable
        ``plans -> plan``, where there are no bundles.
    """

    by_bundles: Callable[[Sequence[ModelPlan], Sequence[Path]], ModelPlan] | None = None
    by_plans: Callable[[Sequence[ModelPlan]], ModelPlan] = operator.itemgetter(0)


FIRST_PLAN = PlanChoice()


def compile_plan(
    planned: Callable[[Mapping[str, Any]], tuple[Sequence[ModelPlan], str]],
    weights: Mapping[str, np.ndarray[Any, Any]],
    folder: Path,
    options: Options | None,
    engine: Engine | None,
    on_event: OnEvent,
    keep_weights: bool,
    choice: PlanChoice = FIRST_PLAN,
) -> CompileResult:
    """Tune the parts of whatever has them, and write its bundle.

    Parameters
    ----------
    planned : callable
        From fields of the parts' specs to the plans to choose from, and what they are in words.
    weights, folder, options, engine, on_event, keep_weights
        As for `compile_graph`, with its errors.
    choice : PlanChoice
        Of several plans.
    """
    options = options or Options()
    check_writable(folder)
    started = time.monotonic()
    plans, words = planned(options.fields())
    on_event(Event("plan", words, 1, 1))
    if choice.by_bundles is None:
        plans = [choice.by_plans(plans)]
    parts = {part.digest: part for plan in plans for part in plan.parts}
    tuned = tune_parts([*parts.values()], options, engine, on_event)
    plan = plans[0]
    if choice.by_bundles is not None and len(plans) > 1:
        with tempfile.TemporaryDirectory(prefix="dietcode-") as name:
            tried = [Path(name) / str(number) for number in range(len(plans))]
            for own, path in zip(plans, tried, strict=True):
                _write_plan(own, weights, path, tuned)
            plan = choice.by_bundles(plans, tried)
    within, apart = (weights, {}) if keep_weights else ({}, weights)
    report = _write_plan(plan, within, folder, tuned, lambda staged: check_loads(staged, folder, apart))
    on_event(Event("build", f"{folder}: {len(plan.parts)} libraries", 1, 1))
    return tuned.result(report, time.monotonic() - started)


def _write_plan(
    plan: ModelPlan,
    weights: Weights,
    folder: Path,
    tuned: TunedParts,
    check: Callable[[Path], None] = lambda staged: None,
) -> dict[str, Any]:
    """Write the bundle of a plan, once it passed a check, and return its report."""
    report = report_of_model(plan, tuned.code_bytes, tuned.searches)
    wanted = {name: weights[name] for name in plan.description["weights"] if name in weights}
    folders = {part.digest: tuned.folders[part.digest] for part in plan.parts}
    files = described_files(plan, report)
    write_bundle(folder, files, wanted, folders, partial(bundle_manifest, plan), check)
    return report


@dataclass(frozen=True)
class TunedParts:
    """The libraries of a model.

    Attributes
    ----------
    folders : dict of str to Path
        Of each library, by the digest of its part.
    searches : dict of str to PartSearch or None
        How far that of each part went.
    num_tuned : int
        Those that were tuned now; others had been built before.
    """

    folders: dict[str, Path]
    searches: dict[str, PartSearch | None]
    num_tuned: int

    @property
    def code_bytes(self) -> dict[str, int]:
        """The bytes of the code of each library."""
        return {digest: _code_bytes(path) for digest, path in self.folders.items()}

    def result(self, report: dict[str, Any], secs: float) -> CompileResult:
        """Return what a compilation made."""
        return CompileResult(report, secs, self.num_tuned)


def tune_parts(
    parts: Sequence[PlannedPart], options: Options, engine: Engine | None, on_event: OnEvent
) -> TunedParts:
    """Tune the parts of a model, or take their libraries from the cache.

    Parameters
    ----------
    parts : sequence of PlannedPart
    options : Options
    engine : Engine or None
        Where candidates are measured; this machine by default.
    on_event : callable

    Raises
    ------
    TargetError, TuningError, LibraryError
        See `dietcode.errors`.
    """
    budgets = shared_budgets(
        {part.digest: part.flops_at_most for part in parts}, options.trials, options.seconds
    )
    built: dict[str, Path] = {}
    searches: dict[str, PartSearch | None] = {}
    engine = engine or LocalMachine()
    device = _device_of(parts, engine)
    num_tuned = 0
    for number, part in enumerate(parts, 1):
        path = _cached(part, device)
        known = None if options.force else _known(path)
        budget = budgets[part.digest]
        search = kept_search(_search_file(path))
        if known is None or (search is not None and search.goes_on_with(budget)):
            label = f"part {number} of {len(parts)}, {part.name}"
            spec = part.with_budget(budget).spec
            built[part.digest] = path
            search = _tuned(spec, path, options, engine, labelled(on_event, label))
            num_tuned += 1
        else:
            on_event(
                Event("part", f"{number} of {len(parts)}, {part.name}: built before", number, len(parts))
            )
            built[part.digest] = known
        searches[part.digest] = search
    return TunedParts(built, searches, num_tuned)


def labelled(on_event: OnEvent, label: str) -> OnEvent:
    """Return a listener that hears which part an event is about."""
    return lambda event: on_event(replace(event, message=f"{label}: {event.message}"))


def _device_of(parts: Sequence[PlannedPart], engine: Engine) -> str:
    """Return the id of the device that all parts are tuned on."""
    if not parts:
        return ""
    device = engine.resolve(parts[0].spec.target)
    if device.refusal is not None:
        raise TuningError(device.refusal)
    return str(device.record["id"])


def _cached(part: PlannedPart, device: str) -> Path:
    """Return where a library of a part is kept: by what is computed, for which device, by which code."""
    kept = json.dumps([device, part.fields["objective"], generator_digest()], sort_keys=True).encode()
    digest = file_facts(kept)["sha256"].removeprefix("sha256:")
    return cache_dir() / "parts" / f"{part.digest}-{digest[:16]}"


def _known(path: Path) -> Path | None:
    """Return the folder of a library that was built before, where it is whole."""
    try:
        read_manifest(path)
    except LibraryError:
        return None
    return path


def _search_file(path: Path) -> Path:
    """Return where it is kept how far the search of a library went; beside its folder, which is one."""
    return path.with_name(f"{path.name}.json")


def _tuned(spec: Spec, path: Path, options: Options, engine: Engine, on_event: OnEvent) -> PartSearch:
    """Tune a part, keep its library in a folder, and return how far the search went."""
    least = Search(least=LEAST_MEASURED)
    try:
        result: TuneResult = make_library(
            spec, force=options.force, engine=engine, on_event=on_event, search=least
        )
    except TuningError as error:
        raise TuningError(f"{spec.name}: {error}") from error
    search = search_of(result.report, PartBudget(spec.budget.trials, spec.budget.seconds))
    write_folder(path, result.files)
    _search_file(path).write_bytes(pretty_json(search.to_json()))
    return search


def _code_bytes(path: Path) -> int:
    return int(read_manifest(path)["files"][CODE]["bytes"])
