"""``dietcode compile`` without its terminal: a graph becomes a bundle."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dietcode._version import __version__
from dietcode.errors import LibraryError, ModelError, TuningError
from dietcode.graph.graph import Graph
from dietcode.measure.engine import Engine
from dietcode.measure.local import LocalMachine
from dietcode.models.budgets import (
    LEAST_MEASURED,
    PartBudget,
    PartSearch,
    kept_search,
    search_of,
    shared_budgets,
    unfinished,
)
from dietcode.models.grouping import make_units
from dietcode.models.kernel_call import KernelCall
from dietcode.models.lowering import Lowered, lower
from dietcode.models.rewriting import rewrite
from dietcode.runtime.cache import cache_dir
from dietcode.runtime.manifest import (
    FILES,
    LIBRARIES,
    MANIFEST,
    MODEL,
    REPORT,
    WEIGHTS,
    check_writable,
    file_facts,
    pretty_json,
    read_manifest,
    sha256_file,
    staged_folder,
    write_folder,
)
from dietcode.runtime.models.executable import read_executable
from dietcode.runtime.models.loading import BUNDLE_FORMAT
from dietcode.runtime.models.model import guard_of
from dietcode.tuner.events import Event, OnEvent, silent
from dietcode.tuner.result import TuneResult
from dietcode.tuner.search import Search
from dietcode.tuner.tune import make_library
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec

Weights = Mapping[str, "np.ndarray[Any, Any]"]
TRIALS, SECONDS = 32, 60.0  # of each part, on average


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
    objective: Mapping[str, Any] = field(default_factory=lambda: {"binary_size": 0.02, "max_loss": 0.1})
    force: bool = False


@dataclass(frozen=True)
class CompileResult:
    """What a compilation made.

    Attributes
    ----------
    report : dict
    secs : float
    num_tuned, num_reused : int
        Libraries that were tuned now, and that had been built before.
    """

    report: dict[str, Any]
    secs: float
    num_tuned: int
    num_reused: int


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
    options = options or Options()
    check_writable(folder)
    started = time.monotonic()
    graph = rewrite(graph)
    lowered = lower(graph, make_units(graph))
    _check_loads(lowered)
    flops = _flops(graph, lowered)
    parts = _specs(lowered, options, shared_budgets(flops, options.trials, options.seconds))
    on_event(Event("plan", f"{len(graph.nodes)} operators become {len(parts)} parts to tune", 1, 1))
    built: dict[str, Path] = {}
    searches: dict[str, PartSearch | None] = {}
    engine = engine or LocalMachine()
    device = _device_of(parts, engine)
    num_tuned = 0
    for number, (digest, spec) in enumerate(parts.items(), 1):
        path = _cached(spec, digest, device)
        known = None if options.force else _known(path)
        budget = PartBudget(spec.budget.trials, spec.budget.seconds)
        search = kept_search(_search_file(path))
        if known is None or (search is not None and search.goes_on_with(budget)):
            label = f"part {number} of {len(parts)}, {spec.name}"
            built[digest], search = _tuned(spec, path, options, engine, _labelled(on_event, label))
            num_tuned += 1
        else:
            on_event(
                Event("part", f"{number} of {len(parts)}, {spec.name}: built before", number, len(parts))
            )
            built[digest] = known
        searches[digest] = search
    report = _report(graph, lowered, parts, built, searches)
    _write(folder, lowered, built, report, weights if keep_weights else {})
    on_event(Event("build", f"{folder}: {len(parts)} libraries", 1, 1))
    return CompileResult(report, time.monotonic() - started, num_tuned, len(parts) - num_tuned)


def _check_loads(lowered: Lowered) -> None:
    """Refuse what loading would refuse, before anything is tuned."""
    executable = read_executable(lowered.description)
    try:
        guard_of(executable)
    except ValueError as error:
        raise ModelError(f"{executable.name}: {error}") from error


def _device_of(parts: Mapping[str, Spec], engine: Engine) -> str:
    """Return the id of the device that all parts are tuned on."""
    target = next((spec.target for spec in parts.values()), None)
    if target is None:
        return ""
    device = engine.resolve(target)
    if device.refusal is not None:
        raise TuningError(device.refusal)
    return str(device.record["id"])


def _labelled(on_event: OnEvent, label: str) -> OnEvent:
    return lambda event: on_event(replace(event, message=f"{label}: {event.message}"))


def _flops(graph: Graph, lowered: Lowered) -> dict[str, int]:
    """Return the FLOPs of all calls of each part, at the largest shapes."""
    largest = {name: high for name, (_, high) in graph.ranges.items()}
    return {
        digest: sum((call.num_flops.evaluate(largest) for call in calls), 0)
        for digest, calls in lowered.calls.items()
    }


def _specs(lowered: Lowered, options: Options, budgets: Mapping[str, PartBudget]) -> dict[str, Spec]:
    """Return the whole spec of each library."""
    specs = {}
    for digest, spec in lowered.specs.items():
        kind = lowered.calls[digest][0].kind
        specs[digest] = spec_from_data(
            {
                "name": f"{kind}-{digest[:12]}",
                **spec,
                **({"target": dict(options.target)} if options.target else {}),
                "budget": asdict(budgets[digest]),
                "objective": dict(options.objective),
            }
        )
    return specs


def _cached(spec: Spec, digest: str, device: str) -> Path:
    """Return where a library of a spec is kept: by what is computed, for which device, by which version."""
    kept = json.dumps([device, spec.to_json()["objective"], __version__], sort_keys=True).encode()
    return cache_dir() / "parts" / f"{digest}-{file_facts(kept)['sha256'].removeprefix('sha256:')[:16]}"


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


def _tuned(
    spec: Spec, path: Path, options: Options, engine: Engine, on_event: OnEvent
) -> tuple[Path, PartSearch]:
    try:
        result: TuneResult = make_library(
            spec, force=options.force, engine=engine, on_event=on_event, search=Search(least=LEAST_MEASURED)
        )
    except TuningError as error:
        raise TuningError(f"{spec.name}: {error}") from error
    search = search_of(result.report, PartBudget(spec.budget.trials, spec.budget.seconds))
    write_folder(path, result.files)
    _search_file(path).write_bytes(pretty_json(search.to_json()))
    return path, search


def _report(
    graph: Graph,
    lowered: Lowered,
    parts: Mapping[str, Spec],
    built: Mapping[str, Path],
    searches: Mapping[str, PartSearch | None],
) -> dict[str, Any]:
    """Return what ``dietcode inspect`` shows of a model."""
    flops, rows = _flops(graph, lowered), []
    for digest, spec in parts.items():
        calls: list[KernelCall] = lowered.calls[digest]
        manifest, search = read_manifest(built[digest]), searches[digest]
        rows.append(
            {
                "digest": digest,
                "name": spec.name,
                "kind": calls[0].kind,
                "operator": str(spec.op),
                "calls": len(calls),
                "flops_at_most": flops[digest],
                "code_bytes": manifest["files"]["library.so"]["bytes"],
                "search": None if search is None else search.to_json(),
            }
        )
    steps = lowered.description["steps"]
    host: dict[str, int] = {}
    for step in steps:
        if "host" in step and not step.get("view"):
            host[step["host"]] = host.get(step["host"], 0) + 1
    return {
        "name": graph.name,
        "dimensions": lowered.description["dimensions"],
        "inputs": {name: str(type_) for name, type_ in graph.inputs.items()},
        "outputs": [str(graph.types[name]) for name in graph.outputs],
        "num_operators": len(graph.nodes),
        "num_weights": len(lowered.description["weights"]),
        "weight_bytes": _weight_bytes(graph, lowered),
        "workspace_bytes": lowered.description["storages"]["max_bytes"],
        "num_calls": sum("kernel" in step for step in steps),
        "host_operators": host,
        "warning": unfinished(rows),
        "parts": sorted(rows, key=lambda row: -int(row["flops_at_most"])),
    }


def _weight_bytes(graph: Graph, lowered: Lowered) -> int:
    types = [graph.weights[name] for name in lowered.description["weights"]]
    return sum(one.num_elements.constant * np.dtype(one.dtype).itemsize for one in types)


def _write(
    folder: Path, lowered: Lowered, built: Mapping[str, Path], report: Mapping[str, Any], weights: Weights
) -> None:
    with staged_folder(folder) as staged:
        (staged / MODEL).write_bytes(pretty_json(lowered.description))
        (staged / REPORT).write_bytes(pretty_json(report))
        files = [MODEL, REPORT]
        wanted = {name: weights[name] for name in lowered.description["weights"] if name in weights}
        if wanted:
            from safetensors.numpy import save_file

            save_file({name: np.asarray(one, order="C") for name, one in wanted.items()}, staged / WEIGHTS)
            files.append(WEIGHTS)
        libraries = {}
        for digest, path in built.items():
            own = staged / LIBRARIES / digest
            own.mkdir(parents=True)
            for name in (MANIFEST, *FILES):
                shutil.copyfile(path / name, own / name)
            libraries[digest] = {"manifest": sha256_file(own / MANIFEST)}
        manifest = {
            "format": BUNDLE_FORMAT,
            "name": lowered.description["name"],
            "version": __version__,
            "files": {
                name: {"bytes": (staged / name).stat().st_size, "sha256": sha256_file(staged / name)}
                for name in files
            },
            "libraries": libraries,
            "dimensions": lowered.description["dimensions"],
            "workspace_bytes": lowered.description["storages"]["max_bytes"],
        }
        (staged / MANIFEST).write_bytes(pretty_json(manifest))
