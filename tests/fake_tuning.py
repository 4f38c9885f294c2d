"""Jobs about models whose parts are not tuned: what tuning would make is written down, or compiled."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from small_libraries import files_of, with_manifest
from small_models import mlp

from dietcode.errors import TuningError
from dietcode.graph.model_request import Content, ModelRequest, kind_of_content, model_from_data
from dietcode.measure import opening
from dietcode.measure.engine_spec import EngineSpec
from dietcode.tuner import tune
from dietcode.tuner.events import Event
from dietcode.tuner.result import TuneResult
from dietcode.workload.identity import workload_digest
from dietcode.workload.spec import Spec
from dietcode_server.engine import worker
from dietcode_server.limits import SizeLimits
from dietcode_server.store import jobs
from dietcode_server.store.database import Database

DEVICE = ("cpu0", "A test CPU", {"kind": "llvm"})
LIMITS = SizeLimits(6, 1 << 24, 10**13, 1 << 33, 10_000, 86_400)


def plain_library(spec: Spec, code: bytes = b"code") -> dict[str, bytes]:
    """Files of a library of one micro-kernel, which can be published and not run."""
    variables = dict.fromkeys(spec.variables, 1)
    instance = {"shape_vars": variables, "weight": 1.0, "category": 0, "micro_kernel": "4x32"}
    rates = {"f_local": 1e9, "f_spatial": 1.0, "f_pad": 1.0, "flops": 4e4, "predicted_gflops": 20.0}
    best = {"best_micro_kernel": "4x32", "best_predicted_gflops": 20.0}
    kernel = {"micro_kernel": "4x32", "provenance": "a test", "bytes": 1, "category": 0}
    served = {"instances_preferring": 1, "instances_served": 1, "f_local": {}}
    report = {"micro_kernels": [kernel | served], "instances": [instance | rates | best]}
    dispatch = {"categories": [{"category": 0, "micro_kernel": "4x32"}], "rule": {}}
    files = {
        "library.so": code + spec.name.encode(),
        "dispatch.json": json.dumps(dispatch).encode(),
        "report.json": json.dumps(report).encode(),
    }
    return with_manifest(
        files,
        spec.name,
        workload=spec.to_json(),
        workload_digest=workload_digest(spec),
        variable_order=list(spec.variables),
        target={"kind": "llvm"},
    )


def untuned_library(spec: Spec) -> dict[str, bytes]:
    """Files of a library that runs."""
    return files_of(spec.to_json())


@dataclass
class FakeTuning:
    """Takes the place of the tuner and of the machine that measures.

    Attributes
    ----------
    make : callable
        From a spec to the files of its library.
    tuned : list of str
        Names of the specs that it was asked for.
    fails : callable
        From the position among them to whether it fails.
    opened : int
        How often a device was opened.
    """

    make: Callable[[Spec], dict[str, bytes]] = plain_library
    tuned: list[str] = field(default_factory=list)
    fails: Callable[[int], bool] = lambda _: False
    opened: int = 0

    def install(self, setattr_: Callable[[Any, str, Any], None]) -> None:
        """Put it in its place."""
        setattr_(tune, "make_library", self.make_library)
        setattr_(opening, "open_engine", self.open_engine)

    def make_library(self, spec: Spec, *, keeper: Any, on_event: Any, **_: Any) -> TuneResult:
        """As the tuner would."""
        number = len(self.tuned)
        self.tuned.append(spec.name)
        records = keeper.open(
            workload_digest(spec), {"id": DEVICE[0], "name": DEVICE[1], "target": DEVICE[2]}
        )
        assert records.records.workload == workload_digest(spec)
        on_event(Event("measure", "4x32", 1, 2, best_gflops=20.0))
        if self.fails(number):
            raise TuningError("no candidate worked")
        files = self.make(spec)
        report = json.loads(files["report.json"])
        return TuneResult(files, report, {"id": DEVICE[0], "name": DEVICE[1]}, 0.1, 1)

    @contextlib.contextmanager
    def open_engine(self, _: EngineSpec) -> Iterator[Any]:
        """An engine whose one device is every job's."""
        self.opened += 1
        target = SimpleNamespace(to_json=lambda: DEVICE[2])
        device = SimpleNamespace(target=target, record={"id": DEVICE[0], "name": DEVICE[1]})
        yield SimpleNamespace(
            resolve=lambda _: device, children=lambda *_: contextlib.nullcontext(SimpleNamespace())
        )


def submit_model(database: Database, content: Content | None = None, **options: Any) -> str:
    """Queue a job about a model, a recursion or a program; its id."""
    budget, asked = {"trials": 2, "seconds": 2.0}, content or mlp()
    data = {kind_of_content(asked): asked.to_json(), "budget": budget}
    model: ModelRequest = model_from_data(data)
    request: dict[str, Any] = {"force": False, "idempotency_key": None} | options
    with database.write() as session:
        row, _ = jobs.submit(session, spec=model, target=DEVICE[2], device=DEVICE, runnable=True, **request)
        return row.id


def work(database: Database, job_id: str, folder: Path) -> int:
    """Carry out a job in this process; its exit status."""
    return worker.work(database, job_id, folder / "work", 5.0, limits=LIMITS)
