"""Where figures get what they measure: libraries tuned from nothing, and shapes tuned alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import per_shape
from benchmarks.ablation import empty_cache
from benchmarks.evidence.versions import ROOT, generator
from benchmarks.facts import done_once
from dietcode.measure.records import Records
from dietcode.search_space.cpu.seed import run_seed
from dietcode.search_space.problem import extents_of, problem_from_spec
from dietcode.search_space.seed import NoTrialError
from dietcode.target.cpu import resolve_target
from dietcode.tuner.report import records_of
from dietcode.tuner.search import Search
from dietcode.tuner.tune import make_library, write_library
from dietcode.workload.parse import load_spec
from dietcode.workload.spec import Spec

Row = dict[str, Any]
_NOTE = "evidence.json"


@dataclass(frozen=True)
class Scale:
    """How much is measured.

    Attributes
    ----------
    dense, hidden, conv, wide : str
        Workloads, below the checkout: a dense layer over its rows, over its hidden sizes, a convolution over
        its batch, and one that needs many micro-kernels.
    num_alone : int
        Held-out shapes of each range that MetaSchedule tunes alone.
    random_state : int
        Which draws them.
    trials : int
        Of MetaSchedule for each of them.
    max_secs : float
        Of each of them, at most.
    budget : dict
        Fields of the specs' budgets to change.
    rounds, prediction_rounds : int
        Readings behind a median; in each of the two passes over the held-out shapes.
    num_instances : int
        At which libraries are timed.
    num_points : int
        Of a trade-off, at most.
    num_runs : int
        Of a search, each with a seed of its own.
    search : Search
        Of every library.
    """

    dense: str = "examples/bert-dense.yaml"
    hidden: str = "examples/bert-dense-hidden.yaml"
    conv: str = "examples/resnet50-conv3x3.yaml"
    wide: str = "examples/two-dims.yaml"
    num_alone: int = 4
    random_state: int = 0
    trials: int = 48
    max_secs: float = 300.0
    budget: Row = field(default_factory=dict)
    rounds: int = 9
    prediction_rounds: int = 2
    num_instances: int = 8
    num_points: int = 6
    num_runs: int = 3
    search: Search = field(default_factory=Search)


@dataclass(frozen=True)
class Tuned:
    """A library that was tuned here from nothing.

    Attributes
    ----------
    folder : Path
    secs : float
        Wall seconds of the whole run.
    measured, pruned : int
        Micro-kernels timed in all, and those of them given up after their first wave.
    disturbed : str or None
        Why the seconds must not become a figure.
    """

    folder: Path
    secs: float
    measured: int
    pruned: int
    disturbed: str | None

    @property
    def report(self) -> Row:
        """The library's report."""
        found: Row = json.loads((self.folder / "report.json").read_text())
        return found

    @property
    def records(self) -> Records:
        """What was measured."""
        return records_of(self.report)


class Shop:
    """Makes what figures ask for, each once.

    Parameters
    ----------
    folder : Path
        For libraries and databases.
    keep : bool
        Take what an earlier run left there, where today's generator made it.
    """

    def __init__(self, folder: Path, scale: Scale, keep: bool = False) -> None:
        self.folder, self.scale, self.keep = folder, scale, keep
        self._made: set[Path] = set()

    def spec(self, path: str) -> Spec:
        """A workload, with the budget of the scale."""
        spec = load_spec(ROOT / path)
        budget = spec.budget.model_copy(update=self.scale.budget)
        return spec.model_copy(update={"budget": budget})

    def library(self, spec: Spec) -> Tuned:
        """Tuned from nothing, in an empty cache."""
        folder = self.folder / "libraries" / spec.name
        if not self._fresh(folder):
            with empty_cache():
                print(f"tuning {spec.name}", flush=True)
                result, secs, disturbed = done_once(lambda: make_library(spec, search=self.scale.search))
                write_library(result, folder)
            pruned = len(result.report["space"]["pruned"])
            self._note(folder, secs=secs, measured=result.measured, pruned=pruned, disturbed=disturbed)
        note = json.loads((folder / _NOTE).read_text())
        return Tuned(folder, *(note[key] for key in ("secs", "measured", "pruned", "disturbed")))

    def alone(self, spec: Spec, binding: dict[str, int]) -> Row:
        """One shape tuned by MetaSchedule alone: its database, trials and seconds."""
        place = "-".join(f"{name}{value}" for name, value in binding.items())
        folder = self.folder / "alone" / spec.name / place
        if not self._fresh(folder):
            print(f"tuning {spec.name} {binding} alone", flush=True)
            problem, target = problem_from_spec(spec), resolve_target(spec.target)
            extents, limits = extents_of(spec, binding), (self.scale.trials, self.scale.max_secs)
            disturbed = None
            try:
                (_, found), _, disturbed = done_once(
                    lambda: run_seed(problem, extents, target, folder, *limits)
                )
            except NoTrialError as error:
                found = {"trials": 0, "secs": self.scale.max_secs, "error": str(error)}
            facts = {key: found.get(key) for key in ("trials", "secs", "error")}
            self._note(folder, **facts, disturbed=disturbed)
        return {"database": str(folder), **json.loads((folder / _NOTE).read_text())}

    def race(self, library: Path, binding: dict[str, int], database: str, rounds: int) -> Row:
        """A library, the best of what MetaSchedule found for one shape, and PyTorch, timed in turns."""
        return per_shape.measure(library, binding, Path(database), per_shape.TOP, rounds, ("torch",))

    def together(self, records: list[tuple[str, int]]) -> int | None:
        """Bytes of one file with a kernel for each shape: of each database the record that was raced."""
        return per_shape.bytes_together(records) if len(records) > 1 else None

    def _fresh(self, folder: Path) -> bool:
        """Whether there is something to take; what is stale is deleted."""
        note = folder / _NOTE
        found = json.loads(note.read_text()) if note.exists() else None
        known = folder in self._made or self.keep
        wanted = {"generator": generator(), "budget": self._bounds()}
        if known and found is not None and wanted.items() <= found.items():
            return True
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return False

    def _note(self, folder: Path, **facts: Any) -> None:
        self._made.add(folder)
        made_of = {"generator": generator(), "budget": self._bounds()}
        (folder / _NOTE).write_text(json.dumps(made_of | facts) + "\n")

    def _bounds(self) -> Row:
        return {"trials": self.scale.trials, "max_secs": self.scale.max_secs, **self.scale.budget}
