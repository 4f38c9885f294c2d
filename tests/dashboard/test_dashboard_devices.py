"""The page of devices: who measures, what was measured, and what a job waits for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from made_app import HOSTILE, MadeApp, opened, text_of
from plain_server import plain_files
from small_libraries import spec_data

from dietcode.target.kinds import GPU, kind_of_target, label_of
from dietcode_server.dashboard.sweep import draw_sweep
from dietcode_server.store import libraries, runners
from dietcode_server.store.devices import Calibration
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.subjects import remember_device, remember_workload, utc_now
from dietcode_server.store.tables import TuningRecord

CPU = {
    "kind": "llvm",
    "mcpu": "znver5",
    "mattr": [],
    "features": ["avx2", "avx512f"],
    "num_cores": 2,
    "vector_bytes": 64,
    "num_vector_registers": 32,
    "l1_bytes": 49152,
    "l2_bytes": 1 << 20,
}
SWEEP: dict[str, Any] = {
    "kappa": 0.95,
    "num_tiles": [1, 2, 3, 4, 5, 6, 7, 8],
    "tile_gflops": [60.0, 120.0, 91.0, 121.0, 100.0, 120.0, 106.0, 122.0],
    "reference_secs": 1e-3,
}


@pytest.fixture
def app(tmp_path: Any) -> Iterator[MadeApp]:
    with opened(tmp_path) as made:
        yield made


def announce(app: MadeApp, name: str = "rack1", job_id: str | None = None) -> None:
    host = {"num_cores": 2, "features": CPU["features"]}
    with app.database.write() as session:
        runners.announce(
            session,
            name=name,
            process="rack1.example/7/1.0",
            engine="rpc",
            version="0.1.0",
            devices=[AnnouncedDevice("cpu0", "A test CPU", CPU, host, "rack1.example")],
            started_at=utc_now(),
            lease_secs=60,
            job_id=job_id,
        )


def measure(app: MadeApp, device: str = "cpu0") -> None:
    """A calibration, and three micro-kernels of a workload."""
    with app.database.write() as session:
        remember_device(session, device, "A test CPU", CPU, utc_now())
        remember_workload(session, "sha256:" + "ab" * 32, spec_data("some-dense"), utc_now())
        lines = [{"kind": "calibration", **SWEEP}, *({"kind": "micro_kernel"} for _ in range(3))]
        for line in lines:
            session.add(
                TuningRecord(
                    workload="sha256:" + "ab" * 32,
                    device_id=device,
                    kind=line["kind"],
                    line=line,
                    created_at=utc_now(),
                )
            )


def test_nothing_can_be_measured_and_a_job_waits(app):
    job = app.client.post("/api/v1/jobs", json={"spec": spec_data("waits")}).json()
    page = app.page("/devices")
    said = text_of(page)
    assert "No runner has announced itself" in said
    assert f'href="/jobs/{job["id"]}"' in page
    assert "no runner can measure mcpu test; run dietcode worker on a machine that can" in said
    assert "dietcode worker" in page and "DIETCODE_SERVE_DATABASE_URL" in page


def test_a_server_that_measures_nothing_says_so(tmp_path):
    with opened(tmp_path, jobs=False) as app:
        assert "this server runs no jobs itself, and no worker is there" in text_of(app.page("/devices"))


def test_runners_are_shown_with_what_they_measure(app):
    job = app.client.post("/api/v1/jobs", json={"spec": spec_data("runs")}).json()
    announce(app, job_id=job["id"])
    for path in ("/devices", "/devices/runners"):
        page = app.client.get(path).text
        said = text_of(page)
        assert "rack1 on rack1.example 0.1.0 rpc A test CPU znver5, 2 cores rack1.example" in said
        assert f'href="/jobs/{job["id"]}"' in page and 'href="#device-cpu0"' in page
    assert "<html" not in app.client.get("/devices/runners").text
    assert 'id="device-cpu0"' in app.page("/devices")
    assert "measured by rack1" in text_of(app.page("/devices"))


def test_a_device_is_shown_with_all_that_is_known_of_it(app):
    measure(app)
    with app.database.write() as session:
        files = plain_files("for-it")
        libraries.publish(session, job=None, device_name="A test CPU", files=files)
        row = libraries.get(session, "for-it")
        row.target = CPU
        libraries.publish(session, job=None, device_name="Another CPU", files=plain_files("not-for-it"))
    page = app.page("/devices")
    said = text_of(page)
    for words in (
        "A test CPU znver5, 2 cores",
        "cores 2",
        "vector 32 registers of 512 bits",
        "L1 data 48 KiB a core",
        "L2 1 MiB a core",
        "κ = 0.95 fitted just now",
        "some-dense abababababab 4 just now",
        "nobody measures it now",
        "Libraries for it: for-it@1",
        "2 CPU features",
    ):
        assert words in said, words
    assert 'href="/libraries/for-it/1"' in page and "not-for-it" not in page
    assert page.count('class="measured"') == 8 and "Throughput of 1 to 8 tiles: 60 to 122 GFLOP/s" in page


def test_what_only_can_be_built_for_is_said(app):
    said = text_of(app.page("/devices"))
    for words in ("{kind: llvm, mcpu: NAME, num_cores: N}", "sm_90a", "dietcode records import FILE"):
        assert words in said


def test_everything_is_escaped(app):
    with app.database.write() as session:
        remember_device(session, "cpu9", HOSTILE, CPU | {"mcpu": HOSTILE, "features": [HOSTILE]}, utc_now())
        remember_device(session, "odd", "odd", {}, utc_now())  # as an older version may have left it
    announce(app, name=HOSTILE)
    page = app.page("/devices")
    assert "<script>alert" not in page and "&lt;script&gt;" in page


def calibration(**changes: Any) -> Calibration:
    facts = SWEEP | changes
    return Calibration(**facts, workload="sha256:" + "ab" * 32, at=utc_now())


def test_a_sweep_is_drawn_to_scale():
    drawn = draw_sweep(calibration(), 2)
    assert drawn is not None
    xs, ys, tiles, rates = zip(*drawn.dots, strict=True)
    assert list(tiles) == SWEEP["num_tiles"] and list(rates) == SWEEP["tile_gflops"]
    assert sorted(xs) == list(xs) and ys[0] == max(ys) and ys[7] == min(ys)
    steps = {round(b - a, 1) for a, b in pairwise(xs)}
    assert max(steps) - min(steps) < 0.2
    (zero, none), *_, (top, highest) = drawn.levels
    assert none == 0 and highest >= 122 and zero == drawn.floor
    for y, rate in zip(ys, rates, strict=True):
        assert y == pytest.approx(zero - (zero - top) * rate / highest, abs=0.1)
    says = [float(point.partition(",")[2]) for point in drawn.curve.split()]
    full = zero - (zero - top) * 122 / highest
    assert says[1::2] == pytest.approx([full] * 4, abs=0.1), "full waves"
    one = 1 / (0.95 * 2 + 0.05)
    assert says[0] == pytest.approx(zero - (zero - top) * 122 * one / highest, abs=0.1)
    assert [n for _, n in drawn.ticks] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    "changes",
    [
        {"num_tiles": (), "tile_gflops": ()},
        {"num_tiles": (1,)},
        {"tile_gflops": (0.0,) * 8},
        {"tile_gflops": (1.0,)},
    ],
)
def test_what_is_no_sweep_is_not_drawn(changes):
    assert draw_sweep(calibration(**changes), 2) is None


def test_targets_have_names_and_facts():
    assert label_of(CPU) == "znver5, 2 cores" and label_of({"kind": "llvm"}) == "llvm"
    assert label_of({"kind": "cuda", "arch": "sm_90"}) == "sm_90" and label_of({}) == "unknown"
    assert label_of(CPU | {"num_cores": 1}) == "znver5, 1 core"
    gpu = dict(GPU.facts({"kind": "cuda", "arch": "sm_90"}))
    assert gpu["shared memory of an SM"] == "228 KiB" and "float8" in gpu["tensor cores multiply"]
    assert GPU.facts({"kind": "cuda", "arch": "sm_1"}) == kind_of_target({}).facts({}) == []


def test_only_what_changes_is_asked_for_again(app):
    page = app.page("/devices")
    assert re.search(r'id="runners"[^>]*hx-get="/devices/runners"[^>]*tick from:body', page)
