"""The stage that measures a library beside the vendor's kernels, and never fails a job."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_libraries import built, library_bytes

from dietcode.bench import confined
from dietcode.errors import TuningError
from dietcode.tuner.events import Event
from dietcode_server.engine import comparing
from dietcode_server.engine.comparing import compare_library
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.subjects import utc_now


@dataclass
class Stage:
    """One run of the stage; `heard` are its messages."""

    heard: list[Event] = field(default_factory=list)

    def run(self, files: dict[str, bytes] | None = None, **changes: Any) -> list[Compared]:
        files = dict(library_bytes("rows")) if files is None else files
        asked: dict[str, Any] = {"asked": "numpy", "engine": "local", "holds": lambda: True, "secs": 4.0}
        job = {"id": "0", "measure": True, "target": {"kind": "llvm"}, "deadline_at": None}
        job |= {name: changes.pop(name) for name in list(changes) if name in job}
        result = SimpleNamespace(files=files, report=json.loads(files["report.json"]))
        return compare_library(
            SimpleNamespace(**job),  # type: ignore[arg-type]
            result,  # type: ignore[arg-type]
            on_event=self.heard.append,
            **(asked | changes),
        )

    @property
    def said(self) -> str:
        return "\n".join(event.message for event in self.heard)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(confined, "_START_SECS", 200.0)  # other tests may run beside these
    return Stage()


@pytest.mark.thorough
def test_rows_lie_at_the_positions_of_their_instances(stage: Stage) -> None:
    found = stage.run()
    instances = json.loads(library_bytes("rows")["report.json"])["instances"]
    positions = [row.position for row in found]
    assert found and len(positions) == len(set(positions)) and {0, len(instances) - 1} >= set(positions[:2])
    for row in found:
        assert (
            row.measured_gflops > 0
            and row.vendor == "numpy"
            and row.vendors == {"numpy": row.vendor_gflops}
            and row.company_gflops > 0
            and row.vendor_company_gflops > 0
        )
        assert row.max_rel_error < 1e-5
    assert {event.stage for event in stage.heard} == {"compare"}
    assert stage.heard[0].message == "beside numpy" and stage.heard[0].total == min(16, len(instances))
    assert stage.heard[-1].done == len(found)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"measure": False}, "this job measures nothing"),
        ({"asked": "none"}, "DIETCODE_SERVE_COMPARE is none"),
        ({"engine": "ray"}, "the engine ray measures on another machine"),
        ({"target": {"kind": "cuda"}}, "a library for a GPU is compared on one"),
        ({"deadline_at": utc_now() + timedelta(seconds=20)}, "deadline is near"),
    ],
)
def test_why_nothing_is_compared_is_said(stage: Stage, changes: dict[str, Any], why: str) -> None:
    assert stage.run(**changes) == []
    assert why in stage.said and len(stage.heard) == 1


def test_a_library_that_does_not_load_fails_no_job(stage: Stage) -> None:
    files = library_bytes("rows") | {"library.so": b"no library"}
    assert stage.run(files) == []
    assert "the comparison ended early: the library" in stage.said and "dietcode-built" not in stage.said


@pytest.mark.thorough
def test_what_was_measured_before_a_crash_stands(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    real = comparing.confined_bench

    def breaks(*arguments: Any) -> Any:
        yield next(real(*arguments))
        raise OSError(28, "no space")

    monkeypatch.setattr(comparing, "confined_bench", breaks)
    assert len(stage.run()) == 1
    assert "ended early: no space" in stage.said


def test_a_hang_costs_only_the_comparison(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{__import__('os').environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(confined, "_START_SECS", 1.0)
    assert stage.run(asked="torch", secs=2.0) == []
    assert "it took longer than 4 s" in stage.said


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("error", ["0.5", "NaN"])
def test_a_wrong_result_fails_the_job(stage: Stage, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    """As it would in the stage before, which looks at eight instances."""
    record = next(iter(confined.confined_bench(built("rows"), "numpy", 2, 2.0, 1)))
    record["max_rel_error"] = float(error)
    monkeypatch.setattr(comparing, "confined_bench", lambda *_: (one for one in [record]))
    with pytest.raises(TuningError, match="is wrong at"):
        stage.run()


@pytest.mark.long
def test_nothing_goes_on_without_the_lease(stage: Stage) -> None:
    assert stage.run(holds=lambda: False) == []
    answers = iter([True, False])
    assert len(stage.run(holds=lambda: next(answers))) == 1
